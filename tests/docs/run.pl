#!/usr/bin/perl
# run.pl [FILE]...: runs what README.md and docs/*.md tell their readers to type, against the cluster that PGHOST and
# PGUSER name, each file in a fresh database of its own. By the language of a fenced block:
#
#   sql             psql runs it. Blocks of a file share one psql; `sql session=NAME` is another one beside it.
#   text            right after sql or sh: the expected output. A line `…` stands for any lines.
#   sh              bash runs it in the checkout, connected to the file's database.
#   sh dry          not run; each make target in it is asked for by make -n.
#   conf            each setting is given to ALTER SYSTEM, which checks it, and taken back.
#   python js cpp   run by tests/drivers; only in README.md.
#   signature       compared with the catalog by reference.pl.
#
# sql and sh without expected output must not fail. `<token>` in sql is the last token that its session printed. Before
# they are compared, tokens, times, numbers that vary, and the widths of columns are made the same. A line
# <!-- skip: REASON --> right before a block leaves it out, and the reason is printed.
use strict;
use warnings;
use utf8;
use open qw(:std :encoding(UTF-8));
use IPC::Open2;

my @files = @ARGV ? @ARGV : ('README.md', grep { $_ ne 'docs/architecture.md' } sort glob('docs/*.md'));
my ($ran, $failed, $skipped, $database_number) = (0, 0, 0, 0);

sub read_file { my ($path) = @_; open(my $f, '<', $path) or die "$path: $!\n"; local $/; return scalar <$f> }

sub blocks_of {
    my ($path) = @_;
    my ($n, $open, $skip, @blocks) = (0);
    for my $line (split /^/, read_file($path)) {
        $n++;
        if ($open) {
            if ($line =~ /^```\s*$/) { push @blocks, $open; undef $open }
            else { $open->{body} .= $line }
        } elsif ($line =~ /^```(\w*)\s*(.*?)\s*$/) {
            $open = { language => $1, attributes => $2, line => $n, body => '', skip => $skip, end => 0 };
            undef $skip;
        } elsif ($line =~ /^<!-- skip: (.*?) -->\s*$/) {
            $skip = $1;
        } elsif ($line =~ /\S/) {
            $blocks[-1]{closed} = 1 if @blocks;    # prose in between: a text block is no longer its output
            undef $skip;
        }
    }
    die "$path: a fenced block does not end\n" if $open;
    return @blocks;
}

# --- sessions of psql

my %sessions;

sub session {
    my ($name, $database) = @_;
    return $sessions{$name} //= do {
        local $ENV{PGDATABASE} = $database;
        my $pid = open2(my $out, my $in, 'psql -X -P pager=off 2>&1');
        binmode($_, ':encoding(UTF-8)') for $out, $in;
        select((select($in), $| = 1)[0]);
        { pid => $pid, in => $in, out => $out, marks => 0, token => '' };
    };
}

sub run_sql {
    my ($s, $sql) = @_;
    # A token that this very block prints has to be known before the statement that uses it is sent.
    my ($output, $part) = ('', '');
    for my $line (split /^/, $sql) {
        if ($line =~ /<token>/ && $part =~ /;[^\n]*\n\z/) {
            $output .= send_sql($s, $part);
            $part = '';
        }
        $part .= $line;
    }
    return $output . send_sql($s, $part);
}

sub send_sql {
    my ($s, $sql) = @_;
    $sql =~ s/<token>/$s->{token}/g;
    my $mark = 'end of block ' . ++$s->{marks};
    print { $s->{in} } "$sql\n\\echo $mark\n";
    my $output = '';
    while (defined(my $line = readline $s->{out})) {
        last if $line eq "$mark\n";
        $output .= $line;
    }
    $s->{token} = $1 while $output =~ /\b(b1[A-Za-z0-9_-]{80,})/g;
    return $output;
}

sub end_sessions {
    for my $s (values %sessions) { close $s->{in}; close $s->{out}; waitpid $s->{pid}, 0 }
    %sessions = ();
}

# --- comparing

sub comparable {
    my ($text) = @_;
    my @lines;
    for (split /\n/, $text) {
        s/^psql:[^:]*:\d+: //;
        s/\bb1[A-Za-z0-9_-]{20,}/TOKEN/g;
        s/\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?[+-]\d\d(:\d\d)?/TIME/g;
        s/(\d+ days? )?\b\d\d:\d\d:\d\d(\.\d+)?/INTERVAL/g;
        s/\b\d+(\.\d+)? s\b/N s/g;
        s/\bpid \d+/pid N/g;
        s/\{\d+\}/{N}/g;
        s/\b\d{9,}\b/N/g;
        s/\b(actual rows=\d+)\.00\b/$1/g;    # as servers from 18 on write it
        s/-{3,}/---/g;
        s/(?<=\S)\s+/ /g;
        s/^\s+|\s+$//g;
        push @lines, $_ if length;
    }
    return @lines;
}

sub matches {
    my ($expected, $actual) = @_;
    my @tags = qr/^(BEGIN|COMMIT|ROLLBACK|SET|CREATE \w+|DROP \w+|INSERT \d+ \d+|GRANT|CALL|Timing is.*)$/;
    my @e = comparable($expected);
    my @a = comparable($actual);
    # an expectation that shows no command tags does not care for them
    unless (grep { $_ =~ $tags[0] } @e) { @a = grep { $_ !~ $tags[0] } @a }
    my $pattern = join '', map { $_ eq '…' ? '(?:.*\n)*?' : quotemeta($_) . '\n' } @e;
    return join('', map { "$_\n" } @a) =~ /\A$pattern\z/;
}

# --- one block

sub run_sh {
    my ($body, $database) = @_;
    local $ENV{PGDATABASE} = $database;
    my $pid = open2(my $out, my $in, 'bash', '-euo', 'pipefail', '-c', "exec 2>&1\n$body");
    close $in;
    binmode($out, ':encoding(UTF-8)');
    local $/;
    my $output = <$out> // '';
    waitpid $pid, 0;
    return ($output, $? == 0 ? '' : "exit status " . ($? >> 8));
}

sub dry_run {
    my ($body) = @_;
    for my $line (split /\n/, $body) {
        $line =~ s/\s#.*//;
        while ($line =~ /\bmake((?: +[a-z][\w-]*)*)/g) {
            my @targets = split ' ', $1;
            system('make -n ' . join(' ', @targets) . ' >/dev/null 2>&1') == 0 or return "make -n @targets fails";
        }
    }
    return '';
}

sub check_conf {
    my ($body, $database) = @_;
    my $s = session('conf', $database);
    my $output = '';
    for (split /\n/, $body) {
        next if /^\s*(#|$)/;
        /^\s*([\w.]+)\s*=\s*(.*?)\s*(#.*)?$/ or return "not a setting: $_";
        my ($name, $value) = ($1, $2);
        $value = "'$value'" unless $value =~ /^'/;
        $output .= run_sql($s, "ALTER SYSTEM SET $name = $value;\nALTER SYSTEM RESET $name;");
    }
    return $output =~ /ERROR/ ? $output : '';
}

sub report {
    my ($path, $block, $what, $output) = @_;
    $failed++;
    print "not ok - $path:$block->{line}: $what\n";
    print map { "    $_\n" } split /\n/, $output if defined $output;
}

sub run_block {
    my ($path, $block, $next, $database) = @_;
    my $language = $block->{language};
    return if $language eq 'signature';
    my $expected = $next && $next->{language} eq 'text' && !$block->{closed} ? $next : undef;
    $expected->{used} = 1 if $expected;
    if (defined $block->{skip}) {
        $skipped++;
        print "skipped - $path:$block->{line}: $block->{skip}\n";
        return;
    }
    $ran++;
    my ($output, $trouble) = ('', '');
    if ($language eq 'sql') {
        my ($name) = $block->{attributes} =~ /^session=(\w+)$/;
        return report($path, $block, "unknown attribute $block->{attributes}") if $block->{attributes} ne '' && !$name;
        $output = run_sql(session($name // 'main', $database), $block->{body});
        $trouble = 'an error' if !$expected && $output =~ /^(psql:\S+ )?(ERROR|FATAL):/m;
    } elsif ($language eq 'sh' && $block->{attributes} eq 'dry') {
        $trouble = dry_run($block->{body});
    } elsif ($language eq 'sh') {
        ($output, $trouble) = run_sh($block->{body}, $database);
    } elsif ($language eq 'conf') {
        $trouble = check_conf($block->{body}, $database);
    } elsif ($language =~ /^(python|js|cpp)$/) {
        $trouble = 'a program belongs into README.md, where tests/drivers runs it' unless $path eq 'README.md';
    } else {
        $trouble = $language eq 'text' ? 'expected output of nothing' : "nobody runs language '$language'";
    }
    return report($path, $block, $trouble, $output) if $trouble ne '';
    if ($expected && !matches($expected->{body}, $output)) {
        report($path, $block, 'another output than the document shows:', $output);
    }
}

# --- links

sub anchors_of {
    my ($path) = @_;
    my (%anchors, %seen);
    my $text = read_file($path) =~ s/^```.*?^```$//gmsr;
    while ($text =~ /^#+ (.*)$/gm) {
        my $anchor = lc($1) =~ s/[^\w -]//gr =~ s/ /-/gr;
        my $n = $seen{$anchor}++;
        $anchors{ $n ? "$anchor-$n" : $anchor } = 1;
    }
    return \%anchors;
}

sub check_links {
    my ($path) = @_;
    my $text = read_file($path) =~ s/^```.*?^```$//gmsr;
    my ($folder) = $path =~ m{^(.*/)?[^/]*$};
    while ($text =~ /\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)/g) {
        my ($file, $anchor) = ($1 eq '' ? $path : ($folder // '') . $1, $2);
        my $wrong = !-e $file ? 'file' : defined $anchor && !anchors_of($file)->{$anchor} ? 'heading' : next;
        $failed++;
        print "not ok - $path: no such $wrong: $file", defined $anchor ? "#$anchor" : '', "\n";
    }
}

# --- all

sub psql_postgres { system('psql', '-X', '-q', '-d', 'postgres', '-c', $_[0]) == 0 or die "psql failed\n" }

for my $path (@files) {
    my @blocks = blocks_of($path);
    my $database = 'docs_' . ++$database_number;
    psql_postgres("CREATE DATABASE $database");
    unless (grep { $_->{language} eq 'sql' && $_->{body} =~ /^CREATE EXTENSION pg_baton;$/m } @blocks) {
        run_sql(session('main', $database), 'CREATE EXTENSION pg_baton;');
    }
    for my $i (0 .. $#blocks) {
        run_block($path, $blocks[$i], $blocks[$i + 1], $database) unless $blocks[$i]{used};
    }
    end_sessions();
    check_links($path);
}
print "docs: $ran blocks ran, $skipped skipped, $failed failed\n";
exit($failed ? 1 : 0);
