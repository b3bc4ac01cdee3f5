#!/usr/bin/perl
# reference.pl: compares what docs/sql-reference.md and README.md say about signatures, columns, options, outcomes and
# settings with the catalog of the cluster that PGHOST, PGUSER, PGDATABASE name. Makes and drops the queue orders.
use strict;
use warnings;
use utf8;
use open qw(:std :encoding(UTF-8));

my ($checked, $failed) = (0, 0);

sub read_file { my ($path) = @_; open(my $f, '<', $path) or die "$path: $!\n"; local $/; return scalar <$f> }

sub query {
    my ($sql) = @_;
    open(my $p, '-|', 'psql', '-X', '-A', '-t', '-v', 'ON_ERROR_STOP=1', '-F', "\x1f", '-c', $sql) or die "psql: $!\n";
    my @rows = map { chomp; [split /\x1f/, $_, -1] } <$p>;
    close $p or die "psql failed\n";
    return @rows;
}

# compare(WHAT, documented, actual): both hashes of name to text
sub compare {
    my ($what, $documented, $actual) = @_;
    my %names = (%$documented, %$actual);
    for my $name (sort keys %names) {
        $checked++;
        my ($d, $a) = ($documented->{$name}, $actual->{$name});
        next if defined $d && defined $a && $d eq $a;
        $failed++;
        print "not ok - $what: $name\n    document: ", $d // 'nothing', "\n    server:   ", $a // 'nothing', "\n";
    }
}

sub squeeze { my ($s) = @_; $s =~ s/\s+/ /g; $s =~ s/^ | $//g; return $s }

# the rows of the table that follows a heading or another line
sub table_after {
    my ($text, $line) = @_;
    $text =~ /^\Q$line\E\n(.*?)(?=^#|\z)/ms or die "no line '$line'\n";
    my @rows;
    for (split /\n/, $1) {
        if (/^\| (.*) \|$/) { push @rows, [map { s/^`|`$//gr } split / \| /, $1, -1] }
        elsif (@rows) { last }
    }
    return @rows[2 .. $#rows];
}

my $reference = read_file('docs/sql-reference.md');

my %documented;
$documented{$1} = squeeze($2) while $reference =~ /^### (\w+)\n\n```signature\n(.*?)^```$/gms;
compare('signature', \%documented, { map { $_->[0] => squeeze($_->[1]) } query(read_file('tests/docs/signatures.sql')) });

query("SELECT baton.create_queue('orders')");
my $columns = "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = '%s'::regclass AND attnum > 0";
my @relations = map { $_->[0] } query("SELECT relname FROM pg_class WHERE relnamespace = 'baton'::regnamespace");
for my $relation (@relations, 'baton_queue.NAME') {
    my $name = $relation =~ /\./ ? $relation : "baton.$relation";
    compare("column of $name", { map { $_->[0] => $_->[1] } table_after($reference, "### $name") },
        { map { $_->[0] => $_->[1] } query(sprintf $columns, $relation =~ /\./ ? 'baton_queue.orders' : $name) });
}

my %not_an_option = map { $_ => 1 } qw(paused held rotation_held_until at_home id);
compare('option of create_queue', { map { $_->[0] => $_->[1] } table_after($reference, '### create_queue') },
    { map { $_->[0] => $_->[1] } grep { !$not_an_option{ $_->[0] } } query("SELECT option, value FROM baton.describe_queue('orders')") });
query("SELECT baton.drop_queue('orders')");

compare('outcome', { map { $_->[0] => "$_->[1] $_->[2]" } table_after($reference, '## Outcomes') },
    { map { $_->[0] => "$_->[1] $_->[2]" } query('SELECT * FROM baton.outcomes()') });

# default as an interval of the server's, where it has a unit
my %setting = map { $_->[0] => "$_->[1], $_->[2]" } query(<<'SQL');
SELECT name, CASE WHEN unit = 'ms' THEN (boot_val || ' ms')::interval::text ELSE boot_val END,
       CASE context WHEN 'sighup' THEN 'reload' WHEN 'postmaster' THEN 'restart' ELSE 'session' END
FROM pg_settings WHERE name LIKE 'pg\_baton.%' AND context <> 'superuser'
SQL
my @rows = table_after(read_file('README.md'), '## Settings');
my %default = map { $_->[0] => $_->[1] =~ /^\d+ \w/ ? (query("SELECT '$_->[1]'::interval"))[0][0] : $_->[1] } @rows;
compare('setting', { map { $_->[0] => "$default{$_->[0]}, $_->[2]" } @rows }, \%setting);

print "reference: $checked compared, $failed differ\n";
exit($failed ? 1 : 0);
