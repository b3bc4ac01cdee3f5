# Tokens taken apart and put together again, with the tag that the server would give them: what a client cannot do, so that
# tests reach the code behind the tag. The layout is that of extension/src/core/token.hpp.
#
#   my $key = BatonToken::key($node, 'postgres');
#   my $fields = BatonToken::open($text);            { database => ..., nonce => ..., ... }
#   my $text = BatonToken::seal($key, $fields);
package BatonToken;

use strict;
use warnings;
use integer;
no warnings 'portable';    # 64-bit numbers
use Exporter 'import';

our @fields = qw(database queue incarnation segment epoch block index id generation nonce claimed_at);
my $layout = 'L< L< L< S< Q< L< C q< L< Q< q<';
my @alphabet = ('A' .. 'Z', 'a' .. 'z', '0' .. '9', '-', '_');

sub rotate
{
	my ($x, $n) = @_;
	# "integer" shifts in the sign
	return ($x << $n) | (($x >> (64 - $n)) & ((1 << $n) - 1));
}

sub siphash
{
	my ($key, $data) = @_;
	my ($k0, $k1) = unpack 'q< q<', $key;
	my @v = ($k0 ^ 0x736f6d6570736575, $k1 ^ 0x646f72616e646f6d, $k0 ^ 0x6c7967656e657261, $k1 ^ 0x7465646279746573);
	my $round = sub {
		$v[0] += $v[1];
		$v[2] += $v[3];
		$v[1] = rotate($v[1], 13) ^ $v[0];
		$v[3] = rotate($v[3], 16) ^ $v[2];
		$v[0] = rotate($v[0], 32);
		$v[2] += $v[1];
		$v[0] += $v[3];
		$v[1] = rotate($v[1], 17) ^ $v[2];
		$v[3] = rotate($v[3], 21) ^ $v[0];
		$v[2] = rotate($v[2], 32);
	};
	my $n = length $data;
	my $padded = $data . "\0" x (7 - $n % 8) . chr($n & 255);
	for my $word (unpack 'q<*', $padded)
	{
		$v[3] ^= $word;
		$round->() for 1 .. 2;
		$v[0] ^= $word;
	}
	$v[2] ^= 0xff;
	$round->() for 1 .. 4;
	return $v[0] ^ $v[1] ^ $v[2] ^ $v[3];
}

sub key
{
	my ($node, $database) = @_;
	return pack 'H*', $node->safe_psql($database, "SELECT encode(key, 'hex') FROM baton_internal.token_key");
}

sub open
{
	my ($text) = @_;
	my %value;
	@value{@alphabet} = 0 .. 63;
	my $bits = join '', map { sprintf '%06b', $value{$_} } split //, substr($text, 2);
	my %f;
	@f{@fields} = unpack $layout, pack 'B*', $bits;
	return \%f;
}

sub seal
{
	my ($key, $f) = @_;
	no warnings 'pack';    # too large a value is cut to its field's width
	my $raw = pack $layout, @$f{@fields};
	$raw .= pack 'q<', siphash($key, $raw);
	my $bits = unpack 'B*', $raw;
	return 'b1' . join '', map { $alphabet[ oct "0b$_" ] } $bits =~ /(.{6})/g;
}

1;
