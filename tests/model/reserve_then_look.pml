/*
 * Finding work in one lane: reserve a range by moving the frontier, then look.
 *
 * What is checked: hints lose nothing by themselves.  When every process has
 * finished, one last claimer follows the hints that are left; after that each
 * committed message must have been delivered exactly once, and nothing else.
 * The scheduled sweep of the workers is left out on purpose: it would find
 * every lost message some time later and so hide every mistake.
 *
 * The one thing to know before changing it: the bounds are as small as each
 * rule allows.  One message or one round more costs a factor of ten, so first
 * ask what it could show that the small model cannot.
 *
 * Compile with one scenario (SCENE_...) and at most one broken rule; README.md
 * lists them and run.sh runs them all.
 */

#if defined(SCENE_ENQUEUE)
#define N 2                     /* messages */
#define CAP 1                   /* places in the revisit list */
#define RANGE 1                 /* positions reserved at once */
#define ROUNDS 1                /* claims a claimer makes before it goes away */
#define STOPS 0                 /* claimers that may stop half-way */
#elif defined(SCENE_PREPARED)
#define N 2
#define CAP 1
#define RANGE 1
#define ROUNDS 2
#define STOPS 0
#elif defined(SCENE_DYING)
#define N 3
#define CAP 1
#define RANGE 2
#define ROUNDS 1
#define STOPS 2
#elif defined(SCENE_LOCKED)
#define N 2
#define CAP 1
#define RANGE 2
#define ROUNDS 2
#define STOPS 1
#elif defined(SCENE_SWEEP)
#define N 3
#define CAP 1
#define RANGE 1
#define ROUNDS 2
#define STOPS 1
#elif defined(SCENE_STARVE)
#define N 2
#define CAP 1
#define RANGE 1
#define ROUNDS 0
#define STOPS 0
#elif defined(SCENE_SUMMARY)
#define N 2
#define CAP 1
#define RANGE 1
#define ROUNDS 2
#define STOPS 0
#define SWEEP_CLAIMS            /* no revisit list: each hint is "sweep me" */
#elif defined(SCENE_CHANGE) || defined(SCENE_REAPER)
#define N 1
#define CAP 1
#define RANGE 1
#define ROUNDS 2
#define STOPS 0
#elif defined(SCENE_RESTART)
#define N 2
#define CAP 1
#define RANGE 1
#define ROUNDS 2
#define STOPS 0
#elif defined(SCENE_WAIT)
#define N 2
#define CAP 2
#define RANGE 1
#define ROUNDS 0
#define STOPS 0
#define WAITERS 2
#elif defined(SCENE_WAIT_DYING)
#define N 1
#define CAP 1
#define RANGE 1
#define ROUNDS 0
#define STOPS 1
#define WAITERS 2
#else
#error "choose a scenario with -DSCENE_..."
#endif

#include "lane.pml"

/* ---- the claim of message 0 ends otherwise than by its worker's ack ---- */

#if defined(SCENE_CHANGE) || defined(SCENE_REAPER)

proctype clock()
{
  expired = true
}

/* The first half of a settlement; refused once the deadline has passed. */
inline begin_settlement(k)
{
  d_step {
    if
    :: slot[0] == claimed && !expired ->
      slot[0] = settling; kind = k; outcome = running; ok = true
    :: else
    fi
  }
}

/* A change that acts at once. */
inline make_ready()
{
  d_step {
    if
    :: slot[0] == claimed && !expired -> slot[0] = ready
    :: else
    fi
  }
}

/* Each way out of the claim is one branch; which are open depends on the scenario. */
proctype holder()
{
  bool ok;

#ifdef SCENE_CHANGE
  if
  :: true ->                                      /* hand_back */
#ifdef RULE_04_HINT_BEFORE_HAND_BACK
    publish(0);
#endif
    make_ready();
#ifndef RULE_04_HINT_BEFORE_HAND_BACK
    publish(0)
#endif
  :: true ->                                      /* void, worked off by anybody */
#ifdef RULE_04_HINT_BEFORE_VOID
    publish(0);
#endif
    make_ready();
#ifndef RULE_04_HINT_BEFORE_VOID
    publish(0)
#endif
  :: true ->                                      /* release now, committed */
    begin_settlement(release);
    if
    :: ok ->
#ifdef RULE_04_HINT_BEFORE_RELEASE
      publish(0);
#endif
      outcome = committed;
#ifndef RULE_04_HINT_BEFORE_RELEASE
      publish(0)
#endif
    :: else
    fi
  :: true ->                                      /* ack, rolled back late */
    begin_settlement(ack);
    if
    :: ok ->
      expired;
      outcome = aborted;
#ifndef RULE_05_ABORTED_SETTLEMENT_SILENT
      publish(0)
#endif
    :: else
    fi
  :: true -> skip                                 /* dies: the reaper speaks for it */
  fi;
#endif
#ifdef SCENE_REAPER
  /* A prepared settlement: its end calls nobody. */
  begin_settlement(ack);
  if
  :: ok -> outcome = committed
  :: ok -> outcome = aborted
  :: else
  fi;
#endif
  ok = false
}

#define unsettled (slot[0] == claimed \
  || (slot[0] == settling && (outcome == running || outcome == aborted)))

bool told;                      /* the reaper's own memory */

inline reap()
{
#ifdef RULE_04_HINT_BEFORE_EXPIRY
  /* Says it when the deadline is near, and takes that for done. */
  if
  :: !told && unsettled -> publish(0); told = true
  :: else
  fi
#elif defined(RULE_06_REAPER_PUBLISHES_ONCE)
  if
  :: !told && expired && unsettled -> publish(0); told = true
  :: else
  fi
#else
  if
  :: expired && unsettled -> publish(0)
  :: else
  fi
#endif
}

proctype reaper()
{
#ifdef SCENE_CHANGE
  /* One pass and the worker is gone: what comes later must be told by others. */
#ifndef RULE_04_HINT_BEFORE_EXPIRY
  expired;
#endif
  reap()
#endif
#ifdef SCENE_REAPER
  expired;
  reap();
  reap()
#endif
}

#endif

/* ---- waiting ---- */

#ifdef WAITERS
/* Woken for a message that it will not take. */
#ifdef RULE_11_DYING_WAITER_SILENT
#define wake_next() skip
#else
#define wake_next() wake_one()
#endif

/* Wants one message; sleeps when there is none. */
proctype waiter(byte me)
{
  CLAIM_LOCALS
  bool last;

  do
  :: hinted ->
    attempt();
    if
    :: stopped -> break
    :: !stopped && got -> break
    :: else
    fi
  :: !hinted ->
#ifdef RULE_11_LOOK_THEN_REGISTER
    waiting[me] = true;
#else
    waiting[me] = true;
    if
    :: hinted -> atomic { waiting[me] = false; wake[me] = false; goto again }
    :: else
    fi;
#endif
end_sleep:
    wake[me];
    if
    :: wake[me] = false
    :: stops > 0 ->
      d_step { stops--; wake[me] = false; stopped = true };
      wake_next();
      break
    fi;
again:  skip
  od;
  forget_locals()
}
#endif

/* ---- restart: the truth stays, the hints are gone ---- */

#ifdef SCENE_RESTART
proctype finisher(byte pos)
{
  if
  :: row[pos] == running -> row[pos] = committed
  :: row[pos] == running -> row[pos] = aborted
  :: row[pos] != running
  fi
}

inline restart()
{
  atomic {
    revisit = 0;
    sweep_wanted = false;
    cursor = 0;
    appended = next;
#ifdef SWEEP_AT_RESTART
    sweep_wanted = true;
#endif
#ifdef RULE_09_FRONTIER_AT_LAST_APPENDED
    frontier = appended;
#else
    frontier = 0;
#endif
    i = 0;
    do
    :: i < N ->
      if
      :: row[i] == running && !prepared[i] -> row[i] = aborted
      :: else
      fi;
      /* The mover's first pass: a claimer that meets these passes them by. */
#ifdef DESIGN_PREPARED_FORGOTTEN_AT_RESTART
      listed[i] = false;
#else
      listed[i] = prepared[i];
#endif
      i++
    :: else -> break
    od;
    i = 0;
    crash = false
  }
}
#endif

/* ---- the scenarios ---- */

#define free(p) (row[p] == committed && slot[p] == ready)

inline check()
{
  d_step {
    i = 0;
    do
    :: i < N ->
      if
      :: row[i] == committed && !(slot[i] == settling && outcome == committed && kind == ack) ->
        assert(delivered[i] >= 1);          /* else: lost */
        assert(delivered[i] <= 1)           /* else: twice */
      :: else ->
        assert(delivered[i] == 0)           /* else: not work */
      fi;
      i++
    :: else -> break
    od;
    i = 0
  }
}

/* Messages 0..n-1 are committed and appended; the frontier is at their bottom. */
inline filled(n)
{
  d_step {
    i = 0;
    do
    :: i < n -> row[i] = committed; slot[i] = ready; i++
    :: else -> break
    od;
    next = n;
    appended = n;
    i = 0
  }
}

init {
  byte i;
#ifdef WAITERS
  bool asleep;
#endif

#ifdef SCENE_ENQUEUE
  atomic {
    enqueuers = 2;
    run enqueuer(false, 0); run enqueuer(false, 1);
    run claimer(false); run claimer(false)
  }
#endif
#ifdef SCENE_PREPARED
  atomic {
    enqueuers = 2;
    run enqueuer(true, 0); run enqueuer(true, 1);
    run claimer(false); run mover()
  }
#endif
#ifdef SCENE_DYING
  atomic { filled(N); run claimer(false); run claimer(false) }
#endif
#ifdef SCENE_LOCKED
  atomic { filled(N); run claimer(false); run claimer(false); run locker() }
#endif
#ifdef SCENE_SWEEP
  /* Everything was offered once and the hints were lost to a full list. */
  atomic {
    filled(N - 1); frontier = N - 1; sweep_wanted = true; enqueuers = 1;
    run enqueuer(false, 0); run claimer(false); run claimer(false)
  }
#endif
#ifdef SCENE_STARVE
  /* Message 0 stays locked for ever; message 1 is there for the taking. */
  atomic { filled(N); frontier = N; sweep_wanted = true; foreign[0] = true; run claimer(true) }
#endif
#ifdef SCENE_SUMMARY
  /* Message 0 was settled long ago. */
  atomic {
    filled(1); slot[0] = gone; delivered[0] = 1; frontier = 1; sweep_wanted = true; enqueuers = 1;
    run enqueuer(false, 0); run claimer(false); run claimer(false)
  }
#endif
#if defined(SCENE_CHANGE) || defined(SCENE_REAPER)
  atomic {
    filled(1); slot[0] = claimed; frontier = 1;
    run holder(); run clock(); run reaper(); run claimer(false); run claimer(false)
  }
#endif
#ifdef SCENE_RESTART
  atomic {
    enqueuers = 2;
    run enqueuer(true, 0); run enqueuer(true, 1); run claimer(false)
  }
  crash = true;
  (_nr_pr == 1);
  restart();
  atomic {
    run mover(); run claimer(false);
    if
    :: prepared[0] -> run finisher(0)
    :: else
    fi;
    if
    :: prepared[1] -> run finisher(1)
    :: else
    fi
  };
#endif
#ifdef WAITERS
  atomic {
    run waiter(0); run waiter(1);
    run enqueuer(false, 0);
#if N > 1
    run enqueuer(false, 1);
#endif
    enqueuers = N
  }
  /* Nothing moves any more: a sleeper beside work that nobody took. */
  timeout;
  asleep = waiting[0] || waiting[1];
  assert(!(asleep && free(0)));
  assert(!(asleep && free(N - 1)))
#elif !defined(SCENE_STARVE)
  (_nr_pr == 1);
#ifdef SCENE_REAPER
  atomic { reap() }           /* it is alive and passes for ever */
#endif
  run claimer(true);
  (_nr_pr == 1);
  check()
#endif
}
