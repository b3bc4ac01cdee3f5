/*
 * One lane: enqueue, its callbacks, claim and sweep; included by
 * reserve_then_look.pml, which has the scenarios and sets the bounds.
 *
 * The one thing to know before changing it: each step written alone is a step
 * at which others may run.  What the server does under one lock or with one
 * atomic instruction stands in atomic or d_step, and nothing else does.
 */

mtype = { none, running, committed, aborted, ready, claimed, settling, gone };
mtype = { ack, release };

#define BIT(p)      (1 << (p))
#define HAS(set, p) (((set) >> (p)) & 1)

/* In one scenario the server may stop under everybody, at any step. */
#ifdef SCENE_RESTART
#define cut_short unless { crash }
#else
#define cut_short
#endif

/* ---- the truth: rows and slots, which survive everything ---- */

mtype row[N] = none;            /* outcome of the transaction that inserted it */
mtype slot[N] = none;
bool  foreign[N];               /* row locked by a session that is not ours */
bool  prepared[N];              /* inserter prepared: lives through a restart */
byte  next;                     /* slots in the map */

/* The claim and the settlement of message 0, where a scenario has one. */
bool  expired;                  /* the clock has passed its deadline */
mtype kind = ack;
mtype outcome = none;           /* of the settling transaction */

/* ---- hints: shared memory ---- */

byte  frontier;
byte  appended;                 /* "last appended": bounds the frontier */
byte  revisit;                  /* the revisit list: a set of CAP positions at most */
bool  sweep_wanted;
byte  cursor;                   /* where the next sweep goes on */
bool  listed[N];                /* prepared enqueues, polled by the mover */
bool  summary;                  /* the lane's only page: "nothing here" */

/* ---- what the checks look at ---- */

byte  delivered[N];
byte  stops = STOPS;            /* claimers that may still stop half-way */
byte  enqueuers;                /* still at work */
bool  crash;

#define list_full (revisit != 0 && (CAP == 1 || revisit == BIT(N) - 1))

#define hinted (revisit != 0 || sweep_wanted || frontier < appended)

#ifdef WAITERS
bool  waiting[WAITERS];
bool  wake[WAITERS];

/* One waiter per message is woken, not all of them. */
inline wake_one()
{
  atomic {
    if
    :: waiting[0] -> waiting[0] = false; wake[0] = true
    :: waiting[1] -> waiting[1] = false; wake[1] = true
    :: else
    fi
  }
}
#else
#define wake_one() skip
#endif

/* While a claimer held the position, a waiter may have looked and gone to sleep. */
#ifdef RULE_11_PUT_BACK_SILENT
#define wake_put_back() skip
#else
#define wake_put_back() wake_one()
#endif

/*
 * Puts one position on the revisit list.  It runs in callbacks that may not
 * allocate, so a full list leaves nothing but the request for a sweep.
 */
inline publish(pos)
{
  d_step {
#ifdef SWEEP_CLAIMS
    sweep_wanted = true
#else
    if
    :: HAS(revisit, pos) -> skip
    :: !HAS(revisit, pos) && !list_full -> revisit = revisit | BIT(pos)
    :: !HAS(revisit, pos) && list_full ->
#ifndef DESIGN_OVERFLOW_DROPPED
      sweep_wanted = true
#else
      skip
#endif
    fi
#endif
  }
}

/* ---- enqueue ---- */

inline raise_appended(pos)
{
  d_step {
    if
    :: appended < pos + 1 -> appended = pos + 1
    :: else
    fi
  }
}

/* The commit callback: the rows are visible to everybody already. */
inline tell_commit(pos)
{
#ifndef RULE_02_FRONTIER_READ_BEFORE_VISIBLE
  f = frontier;
#endif
  if
  :: f > pos -> publish(pos)
  :: else
  fi;
  f = 0;
  wake_one()
}

/* "after": with two that are alike, which of them appends first tells nothing new. */
proctype enqueuer(bool may_prepare; byte after)
{
  byte pos;
  byte f;

  {
    /* Under the page lock: slot, row version, and the page's summary. */
    d_step {
      next >= after;
      pos = next;
      next++;
      slot[pos] = ready;
      row[pos] = running;
      summary = false
    }
#ifndef RULE_11_APPENDED_AFTER_CALLBACK
    raise_appended(pos);
#endif
    if
    :: true ->
#ifdef RULE_02_FRONTIER_READ_BEFORE_VISIBLE
      f = frontier;
#endif
      row[pos] = committed;
      tell_commit(pos)
#ifndef WAITERS                 /* changes no hint and wakes nobody */
    :: true ->
      row[pos] = aborted
#endif
    :: may_prepare ->
      /* Listed before the session lets go: afterwards nobody of ours is called. */
#ifndef DESIGN_PREPARED_UNLISTED
      listed[pos] = true;
#endif
      prepared[pos] = true;
      if                              /* from any session, at any time */
      :: row[pos] = committed
      :: row[pos] = aborted
      fi
    fi;
#ifdef RULE_11_APPENDED_AFTER_CALLBACK
    raise_appended(pos);
#endif
  } cut_short;
  atomic { enqueuers--; pos = 0; f = 0 }
}

#if defined(SCENE_PREPARED) || defined(SCENE_RESTART)
#define finished(p) (listed[p] && row[p] != running)

/* The part of the mover that stands in for the callbacks of prepared enqueues. */
proctype mover()
{
  byte p;
  byte f;

  do
  :: finished(0) || finished(1) ->
    p = (finished(0) -> 0 : 1);
    if
    :: row[p] == committed -> tell_commit(p)
    :: else
    fi;
    listed[p] = false
  :: enqueuers == 0 && !listed[0] && !listed[1] -> break
  od;
  p = 0
}
#endif

/* ---- claim ---- */

/* Who may take the slot, asked under its page's lock. */
#define claimable(p) (slot[p] == ready \
  || (slot[p] == claimed && expired) \
  || (slot[p] == settling && outcome == committed && kind == release) \
  || (slot[p] == settling && outcome == aborted && expired))

/*
 * What a claimer knows of a row after one look at it.  The look is at the truth
 * at this moment; the snapshot only decides what the caller may be given.
 */
inline look_at(p)
{
#ifdef RULE_01_LOOK_BEFORE_RESERVE
  seen = (early -> early_row : row[p]);
#else
  seen = row[p];
#endif
  held = foreign[p]
}

/*
 * Acts on the look, under the slot's page lock.  A row that is owed but cannot
 * be had now goes into "aside".
 */
inline take_or_pass(p)
{
  if
  :: seen == committed && HAS(snap, p) && !held ->
    if
    :: claimable(p) ->
      slot[p] = gone;     /* claimed, worked and acknowledged at once */
      delivered[p]++;
      got = true
    :: else
    fi
  :: seen == committed && !HAS(snap, p) ->
    /* Committed, but not for the snapshot that would have to join it. */
#ifndef DESIGN_INVISIBLE_ROW_DROPPED
    aside = aside | BIT(p)
#else
    skip
#endif
  :: seen == committed && HAS(snap, p) && held ->
#ifndef RULE_05_LOCKED_ROW_DROPPED
    aside = aside | BIT(p)
#else
    skip
#endif
  :: else ->
    /* In progress: its callback comes after our move of the frontier and
     * will see it.  Rolled back: not work. */
    skip
  fi;
  seen = none;
  held = false
}

/* Looks at lo..hi and gives the unread rest back, however the claim ends. */
inline walk(give_back)
{
  do
  :: atomic { lo < hi && !got && !stopped ->
      if
      :: look_at(lo)
      :: stops > 0 && !last -> stops--; stopped = true
      fi
    };
    atomic {
      if
      :: !stopped -> take_or_pass(lo); lo++
      :: else
      fi
    }
  :: atomic { lo < hi && (got || stopped) && give_back -> publish(lo); lo++ };
    wake_put_back()
  :: atomic { lo < hi && (got || stopped) && !give_back -> lo = hi }
  :: lo == hi -> break
  od;
  atomic { lo = 0; hi = 0 }
}

/*
 * Reads the slots below the frontier for work whose hint was lost.  It goes on
 * where the list was full, and has answered a request only when it went from
 * the bottom to the top without filling the list.
 */
inline sweep()
{
#ifndef RULE_07_SWEEP_THEN_CLEAR
  sweep_wanted = false;
#endif
#ifdef RULE_08_SWEEP_FROM_BOTTOM
  start = 0;
#else
  start = cursor;
#endif
  d_step { p = start; top = frontier; dead = true };
  do
  :: p < top && !last && stops > 0 ->
    /* Cancelled on the way: the request is still unanswered. */
    d_step { stops--; stopped = true };
#ifndef RULE_03_SWEEP_NOT_GIVEN_BACK
    sweep_wanted = true;
#endif
    break
#ifdef SWEEP_CLAIMS
  :: p < top && summary -> d_step { p = top; dead = false }
  :: p < top && !summary ->
    d_step { look_at(p) };
    d_step { take_or_pass(p) ; got = false };
    /* In progress is not dead, though nobody can see it yet. */
    d_step {
      if
      :: slot[p] == gone || row[p] == aborted -> skip
#ifdef RULE_10_INVISIBLE_IS_DEAD
      :: row[p] == running -> skip
#endif
      :: else -> dead = false
      fi;
      p++
    }
  :: p >= top ->
    if
    :: dead && top > 0 ->
      /* Under the page lock: what was read on the way may be old, and
       * slots may have come since. */
      d_step {
        if
#ifdef RULE_10_SUMMARY_OUTSIDE_LOCK
        :: true -> summary = true
#else
        :: next == top -> summary = true
        :: else
#endif
        fi
      }
    :: else
    fi;
    break
#else
  :: p < top ->
    atomic {
      if
      :: slot[p] != gone && row[p] == committed && (!list_full || HAS(revisit, p)) ->
        revisit = revisit | BIT(p);
        p++
      :: slot[p] != gone && row[p] == committed && list_full && !HAS(revisit, p) ->
        sweep_wanted = true;
        cursor = p;
        break
      :: else -> p++
      fi
    }
  :: p >= top ->
    cursor = 0;
    if
    :: start > 0 ->
      /* Requests for what lies below "start" are not answered yet. */
#ifndef RULE_08_SWEEP_ENDS_AT_TOP
      sweep_wanted = true
#else
      skip
#endif
    :: else ->
#ifdef RULE_07_SWEEP_THEN_CLEAR
      sweep_wanted = false
#else
      skip
#endif
    fi;
    break
#endif
  od;
  atomic { p = 0; start = 0; top = 0; dead = false }
}

#ifdef RULE_03_POPPED_NOT_GIVEN_BACK
#define give_back_popped false
#else
#define give_back_popped true
#endif
#ifdef RULE_03_RANGE_NOT_GIVEN_BACK
#define give_back_range !stopped
#elif defined(RULE_03_CAP_KEEPS_REST)
#define give_back_range stopped
#else
#define give_back_range true
#endif

inline give_back_aside()
{
  do
  :: aside != 0 ->
    atomic {
      p = (HAS(aside, 0) -> 0 : (HAS(aside, 1) -> 1 : 2));
      aside = aside & ~BIT(p);
      publish(p);
      p = 0
    };
    wake_put_back()
  :: aside == 0 -> break
  od
}

/* One claim of one message: the revisit list, a wanted sweep, the frontier. */
inline attempt()
{
  d_step {                    /* the caller's snapshot, older than every look */
    p = 0;
    do
    :: p < N ->
      if
      :: row[p] == committed -> snap = snap | BIT(p)
      :: else
      fi;
      p++
    :: else -> break
    od;
    p = 0
  };
  do
  :: atomic { !got && !stopped && revisit != 0 ->
      if                  /* in whatever order an implementation keeps it */
      :: HAS(revisit, 0) -> lo = 0
      :: HAS(revisit, 1) -> lo = 1
      :: HAS(revisit, 2) -> lo = 2
      fi;
      revisit = revisit & ~BIT(lo);
      hi = lo + 1
    };
    walk(give_back_popped)
  :: got || stopped || revisit == 0 -> break
  od;
#ifdef RULE_08_LOCKED_ROW_BEFORE_SWEEP
  give_back_aside();
#endif
  if
  :: !got && !stopped && sweep_wanted -> sweep()
  :: else
  fi;
  if
  :: !got && !stopped && frontier < appended ->
#ifdef RULE_01_LOOK_BEFORE_RESERVE
    d_step {
      early = frontier < appended;
      if
      :: early -> lo = frontier; early_row = row[lo]; early_at = lo; lo = 0
      :: else
      fi
    };
#endif
    d_step {
      if
#ifdef RULE_01_LOOK_BEFORE_RESERVE
      :: early && frontier == early_at ->
#else
      :: frontier < appended ->
#endif
        lo = frontier;
        hi = (lo + RANGE < appended -> lo + RANGE : appended);
        frontier = hi
      :: else
      fi
    };
    walk(give_back_range);
#ifdef RULE_01_LOOK_BEFORE_RESERVE
    d_step { early = false; early_row = none; early_at = 0 }
#endif
  :: else
  fi;
  /* Passed-over rows go back last, after a sweep had its turn at the list. */
  give_back_aside();
  snap = 0
}

#ifdef RULE_01_LOOK_BEFORE_RESERVE
#define EARLY_LOCALS bool early; mtype early_row; byte early_at;
#else
#define EARLY_LOCALS
#endif

#define CLAIM_LOCALS \
  byte lo, hi, p, start, top, snap, aside; \
  mtype seen; \
  bool held, got, stopped, dead; \
  EARLY_LOCALS

/* What a finished process still remembers would only multiply states. */
inline forget_locals()
{
  atomic {
    lo = 0; hi = 0; p = 0; start = 0; top = 0; snap = 0; aside = 0;
    seen = none; held = false; got = false; stopped = false; dead = false
  }
}

/* "last" follows the hints to their end and never stops half-way. */
proctype claimer(bool last)
{
  CLAIM_LOCALS
  byte rounds;

  {
    do
    :: hinted && (last || rounds < ROUNDS) && !stopped ->
      attempt();
      d_step {
        got = false;
        if
        :: !last -> rounds++
        :: else
        fi
      };
#ifdef SCENE_STARVE
      if
      :: delivered[1] == 0 ->
accept_starved: skip
      :: else
      fi
#endif
    :: !last || !hinted -> break
    od
  } cut_short;
  rounds = 0;
  forget_locals()
}

/* A session that locks a row for a while and knows nothing of us. */
proctype locker()
{
  foreign[0] = true;
  foreign[0] = false
}
