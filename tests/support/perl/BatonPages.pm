# Files of two clusters, page by page. Both must be flushed (CHECKPOINT on both) and the second must be a physical copy.
#
#   my ($pages, @different) = BatonPages::compare($node1, $node2, "relation, as text", 'map' | 'heap')
#
# A map page must be the same byte for byte. Of a heap page that is left out which PostgreSQL does not log: hint bits,
# command ids, what only the writer of a page notes down for itself (prune hint, page full, free lines), and the checksum
# of all that.
package BatonPages;

use strict;
use warnings;
use PostgreSQL::Test::Utils;

use constant { PAGE => 8192, HEADER => 24 };

sub file_of
{
	my ($node, $relation) = @_;
	my $path = $node->safe_psql('postgres', "SELECT pg_relation_filepath('$relation')");
	return $node->data_dir . "/$path";
}

sub heap_page
{
	my ($page) = @_;
	my ($flags, $lower, $upper) = unpack 'x10 v v v', $page;
	return $page if $upper == 0;    # never used
	substr($page, 8, 2) = "\0" x 2;    # pd_checksum, which covers the rest
	substr($page, 10, 2) = pack 'v', $flags & ~0x0003;    # PD_HAS_FREE_LINES, PD_PAGE_FULL
	substr($page, 20, 4) = "\0" x 4;    # pd_prune_xid
	substr($page, $lower, $upper - $lower) = "\0" x ($upper - $lower);
	for (my $at = HEADER; $at < $lower; $at += 4)
	{
		my $item = unpack 'V', substr($page, $at, 4);
		my ($offset, $kind, $length) = ($item & 0x7fff, ($item >> 15) & 3, $item >> 17);
		next if $kind != 1 || $length == 0;
		substr($page, $offset + 8, 4) = "\0" x 4;    # t_cid
		my $mask = unpack 'v', substr($page, $offset + 20, 2);
		substr($page, $offset + 20, 2) = pack 'v', $mask & ~(0x0f00 | 0x0020);    # hint bits, HEAP_COMBOCID
	}
	return $page;
}

sub compare
{
	my ($node1, $node2, $relation, $kind) = @_;
	my ($one, $two) = map { slurp_file(file_of($_, $relation)) } $node1, $node2;
	my @different;
	my $pages = length($one) > length($two) ? length($one) : length($two);
	$pages = int(($pages + PAGE - 1) / PAGE);
	for my $n (0 .. $pages - 1)
	{
		my ($a, $b) = map { length > $n * PAGE ? substr($_, $n * PAGE, PAGE) : '' } $one, $two;
		($a, $b) = map { length ? heap_page($_) : '' } $a, $b if $kind eq 'heap';
		next if $a eq $b;
		my ($x) = ("$a" ^ "$b") =~ /^(\0*)/;
		push @different, sprintf '%s page %d at %d (lengths %d, %d)', $relation, $n, length $x, length $a, length $b;
	}
	return ($pages, @different);
}

1;
