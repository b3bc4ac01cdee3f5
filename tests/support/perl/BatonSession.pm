# A session that stays open: one psql behind pipes. Statements are sent and answered one after the other; an answer can
# be waited for later, so that a test can hold several sessions at different points.
#
#   my $s = BatonSession->new($node, database => 'postgres', user => 'someone', name => 'shown as application_name');
#   $s->query('SELECT 1')            rows as psql -At prints them; dies of an error
#   $s->try('SELECT 1/0')            a BatonAnswer: ->ok ->rows ->state ->message ->lost
#   $s->send('SELECT pg_sleep(1)')   returns at once;   $s->ready   is the answer there;   $s->answer   waits for it
#   $s->pid  of the backend;   $s->quit;   $s->lost  when the server went away
package BatonSession;

use strict;
use warnings;
use Carp;
use IO::Select;
use IPC::Open3;
use PostgreSQL::Test::Utils;
use Symbol 'gensym';
use Time::HiRes 'time';

my $count = 0;

sub new
{
	my ($class, $node, %opt) = @_;
	my $database = $opt{database} // 'postgres';
	my $s = bless { node => $node, lost => 0, out => '', err => '', asked => 0 }, $class;
	$count++;
	# in the environment and not in the connection string: names of databases and users are taken as they are
	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	local $ENV{PGDATABASE} = $database;
	local $ENV{PGUSER} = $opt{user} if defined $opt{user};
	local $ENV{PGAPPNAME} = $opt{name} // "session$count";
	local $ENV{PGOPTIONS} = $opt{options} // '';
	delete local $ENV{PGSERVICE};
	my ($in, $out, $err) = (undef, undef, gensym);
	$s->{process} = open3($in, $out, $err, $node->installed_command('psql'), '-XAtq', '-v', 'VERBOSITY=verbose');
	binmode $_, ':utf8' for $in;
	$in->autoflush(1);
	@$s{qw(in stdout stderr)} = ($in, $out, $err);
	$s->{select} = IO::Select->new($out, $err);
	$s->{pid} = $s->query('SELECT pg_backend_pid()');
	return $s;
}

sub pid { return $_[0]->{pid} }
sub lost { return $_[0]->{lost} }

sub send
{
	my ($s, $sql) = @_;
	croak 'the last statement has not been answered' if defined $s->{mark};
	local $SIG{PIPE} = 'IGNORE';
	$s->{asked}++;
	$s->{mark} = "--answered $$ $s->{asked}--";
	$s->{statement} = $sql;
	$s->{lost} = 1 unless print { $s->{in} } "$sql\n;\n\\echo '$s->{mark}'\n";
	return $s;
}

# Reads what is there, for at most SECONDS. True once the answer is complete.
sub _read
{
	my ($s, $seconds) = @_;
	my $deadline = time() + $seconds;
	while (!$s->{lost} && $s->{out} !~ /^\Q$s->{mark}\E\n/m)
	{
		my $left = $deadline - time();
		my @ready = $s->{select}->can_read($left > 0 ? $left : 0);
		if (!@ready)
		{
			# a signal ends the wait too
			return 0 if time() >= $deadline;
			next;
		}
		for my $from (@ready)
		{
			my $n = sysread $from, my $bytes, 65536;
			if (!$n) { $s->{select}->remove($from); $s->{lost} = 1 if $from == $s->{stdout}; next; }
			$s->{ $from == $s->{stdout} ? 'out' : 'err' } .= $bytes;
		}
	}
	# psql writes a message before it goes on to the mark
	while (my @ready = $s->{select}->can_read(0))
	{
		my $from = $ready[0];
		my $n = sysread $from, my $bytes, 65536;
		if (!$n) { $s->{select}->remove($from); next; }
		$s->{ $from == $s->{stdout} ? 'out' : 'err' } .= $bytes;
	}
	return 1;
}

sub ready { my ($s) = @_; return defined $s->{mark} && $s->_read(0) }

sub answer
{
	my ($s, $seconds) = @_;
	croak 'nothing was asked' unless defined $s->{mark};
	$seconds //= $PostgreSQL::Test::Utils::timeout_default;
	$s->_read($seconds) or croak "no answer within $seconds s to: $s->{statement}";
	my ($rows, $message) = ($s->{out}, $s->{err});
	$rows =~ s/^\Q$s->{mark}\E\n.*//ms;
	chomp $rows;
	$message =~ s/^LOCATION:.*\n?//mg;
	utf8::decode($rows);
	utf8::decode($message);
	$s->{out} = $s->{err} = '';
	delete $s->{mark};
	my ($state) = $message =~ /^(?:psql:\S*\s*)?(?:ERROR|FATAL|PANIC): +(\w{5}):/m;
	$state //= $s->{lost} ? 'lost' : '00000';
	return bless { rows => $rows, message => $message, state => $state, lost => $s->{lost}, statement => $s->{statement} },
	  'BatonAnswer';
}

sub try { my ($s, $sql, $seconds) = @_; return $s->send($sql)->answer($seconds) }

sub query
{
	my ($s, $sql, $seconds) = @_;
	my $a = $s->try($sql, $seconds);
	croak "$sql\n$a->{message}" . ($a->{lost} ? ' (connection lost)' : '') unless $a->ok;
	return $a->rows;
}

sub quit
{
	my ($s) = @_;
	return unless $s->{process};
	close $s->{in};
	# in the middle of a statement it would not look at its input
	kill 'TERM', $s->{process} if defined $s->{mark};
	waitpid $s->{process}, 0;
	delete $s->{process};
	return;
}

# SIGKILL of the client, and of nothing else
sub kill_client
{
	my ($s) = @_;
	kill 'KILL', $s->{process};
	waitpid $s->{process}, 0;
	delete $s->{process};
	return;
}

sub DESTROY { my ($s) = @_; local ($?, $!); $s->quit; return }

package BatonAnswer;

sub ok { return $_[0]->{state} eq '00000' && !$_[0]->{lost} }
sub rows { return $_[0]->{rows} }
sub row { return split /\|/, (split /\n/, $_[0]->{rows})[0] // '', -1 }
sub state { return $_[0]->{state} }
sub message { return $_[0]->{message} }
sub lost { return $_[0]->{lost} }

1;
