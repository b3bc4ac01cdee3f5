# lint.pl ROOT "HOST ...": reads names of files on standard input and reports every broken rule as file:line: what.
use strict;
use warnings;

my ($root, $hosts) = @ARGV;
my $kMaxLines = 700;
my ($files, $broken) = (0, 0);

sub report
{
	my ($file, $line, $what) = @_;
	print "$file:$line: $what\n";
	$broken++;
	return;
}

sub slurp
{
	my ($file) = @_;
	open my $fh, '<', $file or die "$file: $!\n";
	local $/;
	return scalar(<$fh>) // '';
}

# C++ with comments and the contents of literals blanked, line numbers kept
sub code_only
{
	my ($text) = @_;
	my $blank = sub { my $s = shift; $s =~ s/[^\n]/ /g; $s };
	$text =~ s{
		( //[^\n]* | /\*.*?\*/ )
		| R"([^(\s]*)\((.*?)\)\2"
		| "((?:[^"\\\n]|\\.)*)"
		| (?<![0-9a-fA-F])'((?:[^'\\\n]|\\.)+)'
	}{ defined $1 ? $blank->($1) : do { my $m = $&; '"' . $blank->(substr($m, 1, length($m) - 2)) . '"' } }gsex;
	return $text;
}

# Outside core every frame may be left by longjmp, so nothing with a destructor may live there, and nothing may throw.
my @server_bans = (
	[ qr/\bstd::(?:w?string|basic_string|vector|(?:unordered_)?(?:multi)?(?:map|set)|list|forward_list|deque|queue|stack|function|any|variant|optional<std)\b/,
		'no std container in code that the server can jump out of' ],
	[ qr/\b(?:std::)?(?:unique_ptr|shared_ptr|weak_ptr|make_unique|make_shared)\b/, 'no smart pointer here: use palloc' ],
	[ qr/\b(?:lock_guard|unique_lock|scoped_lock|std::mutex|std::thread|std::async|pthread_\w+)\b/, 'no threads and no mutexes in the server' ],
	[ qr/\bstd::(?:cout|cerr|i?o?stringstream|[io]fstream|random_device|locale)\b/, 'no iostreams, locales, random_device in the server' ],
	[ qr/\bnew\s+[A-Za-z_:]/, 'new belongs to core: use palloc' ],
	[ qr/(?:^|[;{}()])\s*delete(?:\s*\[\]\s*|\s+|(?=[*(]))[A-Za-z_:*(][^;]*;/, 'delete belongs to core' ],
	[ qr/\b(?:usleep|pg_usleep|nanosleep|sleep)\s*\(/, 'no sleep: wait on a latch' ],
);
my $throwing = qr/\b(?:try\b(?!_)|throw\b|catch\s*\()/;
my $core_bans = qr/\b(?:palloc\w*|pfree|ereport|elog|Datum|PG_TRY|CHECK_FOR_INTERRUPTS|MemoryContext\w*)\b/;

sub lint_cpp
{
	my ($file, $text) = @_;
	my $in_server = $file =~ m{^extension/src/};
	my $in_core = $file =~ m{^extension/src/core/};
	# the gate, and the headers that only some majors have
	my $is_gate = $file =~ m{^extension/src/pg/(?:postgres|compat)\.hpp$};
	my $may_throw = $file =~ m{^extension/src/pg/(?:boundary|guard)\.hpp$};
	my @code = split /\n/, code_only($text), -1;
	my @raw = split /\n/, $text, -1;
	my $pg_try = 0;

	for my $i (0 .. $#code)
	{
		my $n = $i + 1;
		my $line = $code[$i];
		if ($raw[$i] =~ /^\s*#\s*include\s*(["<])([^">]+)/)
		{
			my ($kind, $name) = ($1, $2);
			if ($in_core)
			{
				report($file, $n, "core includes only the standard library and core: $name")
				  if $name =~ m{(?:^|/)(?:pg|leasemap|worker|sqlfn)/} || $name =~ /postgres/ || ($kind eq '"' && $name =~ /\.h$/);
			}
			elsif ($in_server && !$is_gate)
			{
				report($file, $n, "server headers belong in pg/postgres.hpp: $name")
				  if $name =~ /\.h$/ && ($kind eq '"' || $name =~ m{^(?!sys/)[a-z]+/});
			}
			next;
		}
		next unless $in_server;
		report($file, $n, 'PG_VERSION_NUM is tested in pg/compat.hpp alone')
		  if $line =~ /PG_VERSION_NUM/ && $file ne 'extension/src/pg/compat.hpp';
		if ($in_core)
		{
			report($file, $n, "core knows nothing of the server: $1") if $line =~ /($core_bans)/;
			next;
		}
		for my $ban (@server_bans)
		{
			report($file, $n, $ban->[1]) if $line =~ $ban->[0];
		}
		report($file, $n, 'try, catch and throw are for pg/boundary.hpp alone') if !$may_throw && $line =~ $throwing;
		if ($line =~ /\bPG_TRY\s*\(/) { $pg_try = 1; }
		elsif ($line =~ /\bPG_(?:CATCH|FINALLY|END_TRY)\s*\(/) { $pg_try = 0; }
		elsif ($pg_try && $line =~ /\b(?:return|goto)\b/) { report($file, $n, 'no return out of PG_TRY'); }
	}
	return;
}

my $todo = join '|', map { join '', @$_ } [ 'TO', 'DO' ], [ 'FIX', 'ME' ], [ 'X', 'XX' ];
my @anywhere = (
	[ qr/\b(?:$todo)\b/, 'unfinished business' ],
	[ qr{(?<![\w.])/(?:root|home/[a-z]\w*|[w]ork/\w+)/}, 'a path of one machine' ],
	[ qr{\.\./[s]hared/}, 'a path outside the project' ],
	[ qr{"resolved":\s*"[a-z]+://}, 'a lock file that names a registry' ],
);
push @anywhere, [ qr/\Q$root\E\//, 'the path of this checkout' ] if length $root > 5;
push @anywhere, [ qr/(?<![\w.-])\Q$_\E(?![\w-])/, "the host of a package registry" ] for split ' ', $hosts;

while (my $file = <STDIN>)
{
	chomp $file;
	next unless -f $file && -T _;
	next if $file =~ m{^bench/results/};
	my $text = slurp($file);
	$files++;

	my $n = 0;
	for my $line (split /\n/, $text)
	{
		$n++;
		for my $rule (@anywhere)
		{
			report($file, $n, $rule->[1]) if $line =~ $rule->[0];
		}
		report($file, $n, 'blank at the end of the line') if $line =~ /[ \t]$/ && $file =~ /\.(?:cpp|hpp|sql|sh|pl|pm|py|pml)$/;
	}
	report($file, $n, "more than $kMaxLines lines: split it by subject")
	  if $n > $kMaxLines && $file =~ /\.(?:cpp|hpp|sql|sh|pl|pm|py)$/ && $file !~ m{^tests/upgrade/pg_baton--};
	lint_cpp($file, $text) if $file =~ /\.(?:cpp|hpp)$/ && $file =~ m{^(?:extension|client)/};
	if ($file =~ /\.sh$/ || $text =~ /\A#!.*\bbash\b/)
	{
		my $out = `bash -n '$file' 2>&1`;
		report($file, 1, "bash -n: $out") if $? != 0;
	}
}
my @magic = grep { $_ } map { slurp($_) =~ /^\s*PG_MODULE_MAGIC/m } glob 'extension/src/*.cpp extension/src/*/*.cpp';
report('extension/src', 1, 'PG_MODULE_MAGIC belongs in one file') if @magic > 1;

print $broken ? "lint: $files files, $broken rules broken\n" : "lint: $files files, no rule broken\n";
exit($broken ? 1 : 0);
