# awk -f expand.awk PART... STEP: the upgrade step STEP, in which a line "@create FUNCTION baton.x" stands for the statement of
# the install parts that makes it, and "@replace VIEW baton.y" for the same with OR REPLACE; each with its comments, and both
# written to standard output. So a definition has one text until the release, when the expanded step takes the place of STEP.

function fail(what) {
    print FILENAME ":" FNR ": " what > "/dev/stderr"
    failed = 1
    exit 1
}

# "CREATE FUNCTION baton.x(a text)" -> "FUNCTION baton.x"; OR REPLACE, ACCESS METHOD and the like are not needed yet
function subject(line,   words) {
    split(line, words, /[ (;]+/)
    return words[2] " " words[3]
}

# ---- the parts
FILENAME != ARGV[ARGC - 1] {
    if (!open && /^(CREATE|COMMENT ON) /) {
        open = 1
        text = ""
        body = ""
        comment = /^COMMENT/
        what = comment ? subject(substr($0, 9)) : subject($0)
        if (comment && what ~ /^COLUMN /) {
            sub(/^COLUMN /, "", what)
            sub(/\.[^.]*$/, "", what)
            what = relation[what]
        }
    }
    if (!open) next
    text = text $0 "\n"
    if (body == "" && match($0, /\$[a-z]*\$/)) {
        body = substr($0, RSTART, RLENGTH)
        rest = substr($0, RSTART + RLENGTH)
        if (index(rest, body)) body = ""
    } else if (body == "" && /^BEGIN ATOMIC$/) {
        body = "END;"
        next
    } else if (body != "" && index($0, body) == 1) {
        body = ""
    }
    if (body != "" || !/;$/ && !/;  *--/) next
    open = 0
    if (comment) {
        comments[what] = comments[what] text
    } else {
        statement[what] = text
        split(what, words, " ")
        relation[words[2]] = what
    }
    next
}

# ---- the step
/^@/ {
    what = $2 " " $3
    if ($1 != "@create" && $1 != "@replace" || NF != 3) fail("neither @create KIND NAME nor @replace KIND NAME")
    if (!(what in statement)) fail("no install part has CREATE " what)
    text = statement[what]
    if ($1 == "@replace") sub(/^CREATE /, "CREATE OR REPLACE ", text)
    printf "%s%s", text, comments[what]
    next
}
{ print }
