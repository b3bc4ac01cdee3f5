/*
 * Rotation: a segment is emptied at one stroke and used again.
 *
 * What is checked: nothing that is owed goes with it, no token of the old life
 * fits a claim of the new one, whoever may still ask gets a true answer, and a
 * dump holds each message or its effect, or fails loudly.
 *
 * The one thing to know before changing it: who appends or settles holds the
 * segment's shared lock, truncation needs the exclusive one, and between any
 * two steps that are not in one d_step others may run.
 *
 * Compile with one scenario (SCENE_...) and at most one broken rule; README.md
 * lists them and run.sh runs them all.  Where two safeguards do the same work,
 * a variant that gives up one of them must still hold.
 */

mtype = { none, inserted, ready, claimed, settling, gone };     /* slot */
mtype = { running, committed, aborted };                        /* transaction */
mtype = { ok, already, already_by_other, stale };               /* answer */

/* ---- the segment's relation lock ---- */

byte shared;
bool exclusive;

inline lock_shared()
{
  d_step { !exclusive; shared++ }
}

inline unlock_shared()
{
  shared--
}

/* In truth conditional: who does not get it comes again. */
inline lock_exclusive()
{
  d_step { shared == 0 && !exclusive; exclusive = true }
}

inline unlock_exclusive()
{
  exclusive = false
}

/* ------------------------------------------------------------------ */
#ifdef SCENE_TRUNCATE
/* Message 0 is claimed; message 1 is being enqueued. */
mtype slot[2] = none;
mtype enqueue1 = none;          /* outcome of the enqueue of message 1 */
mtype settle0 = none;           /* outcome of the settlement of message 0 */
bool  expired;
bool  wiped[2];                 /* went with the segment */

proctype enqueuer()
{
  lock_shared();
  d_step { slot[1] = inserted; enqueue1 = running };
#ifdef RULE_27_LOCK_NOT_HELD_TO_THE_END
  unlock_shared();
#endif
  if
  :: enqueue1 = committed
  :: enqueue1 = aborted
  fi;
#ifndef RULE_27_LOCK_NOT_HELD_TO_THE_END
  unlock_shared()
#endif
}

proctype settler()
{
  lock_shared();
  if
  :: d_step { slot[0] == claimed && !expired -> slot[0] = settling; settle0 = running };
    if
    :: settle0 = committed
    :: settle0 = aborted
    fi
  :: slot[0] != claimed || expired
  fi;
  unlock_shared()
}

proctype clock()
{
  expired = true
}

#ifdef RULE_27_INSERTER_NOT_COUNTED
#define inserter_owes (enqueue1 == committed)
#else
#define inserter_owes (enqueue1 != aborted)
#endif
#ifdef RULE_28_EXPIRED_CLAIM_IS_SETTLED
#define claim_owes (!expired)
#else
#define claim_owes true
#endif

/* Unsettled: not provably settled and not provably rolled back. */
#define unsettled0 ((slot[0] == claimed && claim_owes) \
  || (slot[0] == settling && (settle0 == running || (settle0 == aborted && claim_owes))))
#define unsettled1 (slot[1] == inserted && inserter_owes)

proctype truncator()
{
  bool drained;

#ifdef RULE_26_MAP_CHECKED_BEFORE_LOCK
  drained = !unsettled0 && !unsettled1;
  lock_exclusive();
#else
  lock_exclusive();
  drained = !unsettled0 && !unsettled1;
#endif
  if
  :: drained ->
    d_step {
      if
      :: slot[0] != none -> wiped[0] = true; slot[0] = none
      :: else
      fi;
      if
      :: slot[1] != none -> wiped[1] = true; slot[1] = none
      :: else
      fi
    }
  :: !drained
  fi;
  unlock_exclusive();
  drained = false
}

init {
  atomic {
    slot[0] = claimed;
    run enqueuer(); run settler(); run clock(); run truncator(); run truncator()
  }
  (_nr_pr == 1);
  assert(!wiped[0] || settle0 == committed);      /* else: claimed work is gone */
  assert(!wiped[1] || enqueue1 == aborted)        /* else: an enqueue is gone */
}
#endif

/* ------------------------------------------------------------------ */
#ifdef SCENE_HINTS
/* The old life ended with position 0 settled; message 1 is the first of the new one. */
byte epoch = 1;
mtype row = none;               /* the enqueue of the message of the new life */
bool delivered;

byte hint_epoch = 1;
byte frontier = 1;
byte appended = 1;
bool revisit;

#define wipe_hints() frontier = 0; appended = 0; revisit = false

/* Hints that carry the life they belong to are renewed by whoever comes first. */
inline touch()
{
#ifdef HINTS_CARRY_EPOCH
  if
  :: hint_epoch != epoch -> wipe_hints(); hint_epoch = epoch
  :: else
  fi
#else
  skip
#endif
}

proctype truncator()
{
  lock_exclusive();
  epoch = 2;
#if !defined(RULE_33_HINTS_RESET_AFTER_UNLOCK) && !defined(HINTS_CARRY_EPOCH)
  d_step { wipe_hints() };
#endif
  unlock_exclusive();
#ifdef RULE_33_HINTS_RESET_AFTER_UNLOCK
  d_step { wipe_hints() };
#endif
#ifdef HINTS_CARRY_EPOCH
  d_step {
    if
    :: hint_epoch == 1 -> wipe_hints(); hint_epoch = 2
    :: else
    fi
  };
#endif
}

proctype enqueuer()
{
  byte f;

  epoch == 2;
  lock_shared();
  row = running;
  d_step { touch(); appended = 1 };
  row = committed;
  d_step { touch(); f = frontier };
  if
  :: f > 0 -> d_step { touch(); revisit = true }
  :: else
  fi;
  unlock_shared();
  f = 0
}

proctype claimer()
{
  bool look;

  lock_shared();
  d_step {
    touch();
    if
    :: revisit -> revisit = false; look = true
    :: !revisit && frontier < appended -> frontier = appended; look = true
    :: else
    fi
  };
  d_step {
    if
    :: look && epoch == 2 && row == committed -> delivered = true
    :: else
    fi
  };
  unlock_shared();
  look = false
}

init {
  atomic { run truncator(); run enqueuer(); run claimer() }
  (_nr_pr == 1);
  run claimer();
  (_nr_pr == 1);
  assert(delivered)                       /* else: the new life's hint is gone */
}
#endif

/* ------------------------------------------------------------------ */
#ifdef SCENE_TOKEN
/*
 * Client 1 settled message 1 and did not hear the answer, so it asks again.
 * Meanwhile the segment may be emptied, and message 2 gets the same place and
 * the same generation.
 */
#ifdef RULE_30_EPOCH_NOT_COMPARED
#define epoch_fits true
#else
#define epoch_fits (epoch == 1)
#endif
#ifdef RULE_30_NONCE_NOT_COMPARED
#define nonce_fits true
#else
#define nonce_fits (nonce == 1)
#endif
#ifdef RULE_30_ID_NOT_COMPARED
#define id_fits true
#else
#define id_fits (id == 1)
#endif

mtype slot = claimed;
byte  epoch = 1, generation = 1, nonce = 1, id = 1;
bool  lease_over;               /* the lease that client 1 was told */

/* The fence, as client 1's token meets it. */
inline ask()
{
  d_step {
    if
    :: slot != none && generation == 1 && epoch_fits && nonce_fits && id_fits ->
      if
      :: slot == gone ->
        assert(id == 1);            /* else: answers for another message */
        out = already
      :: slot == claimed && !(nonce == 1 && lease_over) ->
        assert(id == 1);            /* else: settles another message */
        slot = gone; out = ok
      :: else -> out = stale
      fi
    :: else -> out = stale
    fi;
    /* A token that is still good for a while must get an answer that says something. */
    assert(lease_over || out != stale)
  }
}

proctype client1()
{
  mtype out;

  ask();                                  /* settles; the answer is lost */
  ask();
  out = 0
}

proctype clock()
{
  lease_over = true
}

proctype truncator()
{
end_in_use:
#ifdef RULE_31_LEASE_NOT_WAITED_FOR
  d_step { slot == gone; slot = none; epoch = 2; generation = 0; nonce = 0; id = 0 }
#else
  d_step { slot == gone && lease_over; slot = none; epoch = 2; generation = 0; nonce = 0; id = 0 }
#endif
}

proctype new_life()
{
end_not_yet:
  d_step { epoch == 2; slot = ready; id = 2 };
  d_step { slot == ready; slot = claimed; generation = 1; nonce = 2 };
  d_step {
    if
    :: slot == claimed -> slot = gone
    :: else
    fi
  }
}

init {
  atomic { run client1(); run clock(); run truncator(); run new_life() }
}
#endif

/* ------------------------------------------------------------------ */
#ifdef SCENE_MOVED
/*
 * Message 1 is claimed in segment 0 by client 1 and moved to segment 1, as
 * unclaimed work if the lease was over or else claim and all.  The token points
 * to the old place; from there it is looked up by id.
 */
mtype slot[2] = none;
byte  nonce[2];
bool  moved;
bool  expired;                  /* client 1's lease */
byte  settled_by;               /* client, 0: nobody */

/* Client 1 does not hear the answer to its first call and asks once more. */
inline ask()
{
  d_step {
    n = (moved -> 1 : 0);
    if
    :: slot[n] == claimed && nonce[n] == 1 && !expired ->
      slot[n] = gone; settled_by = 1; out = ok
    :: slot[n] == gone ->
#ifdef RULE_32_NO_VERDICT
      out = already
#else
      out = (nonce[n] == 1 -> already : already_by_other)
#endif
    :: else -> out = stale
    fi;
    assert(out != already || settled_by == 1);          /* else: somebody else's work */
    assert(out != already_by_other || settled_by == 2);
    assert(out != stale || expired);                    /* else: a good token is not found */
    n = 0
  }
}

proctype client1()
{
  mtype out;
  byte n;

  if
  :: ask()
  :: skip                                 /* it never got that far */
  fi;
  ask();
  out = 0
}

proctype clock()
{
  expired = true
}

proctype mover()
{
  d_step {
    if
    :: slot[0] == claimed && expired ->
      slot[0] = gone; moved = true; slot[1] = ready
    :: slot[0] == claimed && !expired ->
      slot[0] = gone; moved = true; slot[1] = claimed; nonce[1] = nonce[0]
    :: else
    fi
  }
}

proctype client2()
{
  d_step {
    if
    :: moved && (slot[1] == ready || (slot[1] == claimed && expired)) ->
      slot[1] = claimed; nonce[1] = 2
    :: else
    fi
  };
  d_step {
    if
    :: slot[1] == claimed && nonce[1] == 2 -> slot[1] = gone; settled_by = 2
    :: else
    fi
  }
}

init {
  atomic {
    slot[0] = claimed; nonce[0] = 1;
    run client1(); run clock(); run mover(); run client2()
  }
}
#endif

/* ------------------------------------------------------------------ */
#ifdef SCENE_MOVE
/* A mover, and workers that claim and settle in either place. */
mtype slot[2] = none;
mtype move = none;              /* the mover's transaction */
byte  settled;

proctype mover()
{
  bool mine;

#ifdef RULE_29_MOVED_WITHOUT_SETTLING_ID
  mine = slot[0] == ready;                /* a look, and then the rows */
  move = running;
#else
  d_step {
    mine = slot[0] == ready;
    move = running;
    if
    :: mine -> slot[0] = settling
    :: else
    fi
  };
#endif
  if
  :: mine -> slot[1] = inserted           /* delete here, insert there */
  :: else
  fi;
  if
  :: mine -> d_step { move = committed; slot[0] = gone; slot[1] = ready }
  :: move = aborted
  fi;
  mine = false
}

#define free(n) (slot[n] == ready || (n == 0 && slot[n] == settling && move == aborted))

proctype worker(byte n)
{
  if
  :: d_step { free(n); slot[n] = claimed };
    d_step {
      if
      :: n == 0 && slot[n] == gone && move == committed -> skip
      :: else -> slot[n] = gone
      fi;
      settled++;
      assert(settled <= 1)            /* else: settled twice */
    }
  :: skip
  fi
}

init {
  atomic { slot[0] = ready; run mover(); run worker(0); run worker(1) }
  (_nr_pr == 1);
  assert(settled == 1 || free(0) || free(1))      /* else: lost */
}
#endif

/* ------------------------------------------------------------------ */
#ifdef SCENE_DUMP
/*
 * A dump takes its snapshot first and its locks later.  In between, work may be
 * done and its segment emptied.
 */
bool settled;                   /* effect and delete, in one transaction */
bool emptied;
bool guard;                     /* the truncating id is kept and asked for */
bool looking, looking_settled;   /* the dump's snapshot, and what it sees as settled */

proctype worker()
{
  settled = true
}

proctype truncator()
{
  if
#if !defined(RULE_34_NEITHER_HORIZON_NOR_GUARD) && !defined(ONLY_GUARD)
  /* The horizon: no snapshot is left that would still see the message. */
  :: d_step { settled && (!looking || looking_settled) && shared == 0; emptied = true }
#endif
#if !defined(RULE_34_NEITHER_HORIZON_NOR_GUARD) && !defined(ONLY_HORIZON)
  /* By force, and loudly. */
#ifndef RULE_34_GUARD_SET_AFTERWARDS
  :: d_step { settled && shared == 0; emptied = true; guard = true }
#else
  :: d_step { settled && shared == 0; emptied = true };
    guard = true
#endif
#endif
#ifdef RULE_34_NEITHER_HORIZON_NOR_GUARD
  :: d_step { settled && shared == 0; emptied = true }
#endif
  fi
}

proctype dump()
{
  d_step { looking = true; looking_settled = settled };
  lock_shared();
  if
  :: guard && !looking_settled -> skip   /* 40001 */
  :: else ->
    /* The message, or its effect. */
    assert((!emptied && !looking_settled) || looking_settled)
  fi;
  unlock_shared();
  looking = false
}

init {
  atomic { run worker(); run truncator(); run dump() }
}
#endif

/* ------------------------------------------------------------------ */
#ifdef SCENE_NEWEST
/*
 * Segment 0 was the newest when an enqueuer asked, and need not be by the time
 * that it holds the lock.  An emptied segment that is not the newest is not
 * looked at by claimers, unless they look at all of them.
 */
bool looked_at[2];
byte newest;
byte enqueued = 2;              /* the segment that got the message */

proctype enqueuer()
{
  byte n;

  n = newest;
  do
  :: n == 0 ->
    lock_shared();
#ifndef DESIGN_NEWEST_NOT_READ_AGAIN
    if
    :: newest != 0 -> unlock_shared(); n = newest
    :: newest == 0 -> enqueued = 0; unlock_shared(); break
    fi
#else
    enqueued = 0;
    unlock_shared();
    break
#endif
  :: n == 1 -> enqueued = 1; break
  od;
  n = 0
}

proctype rotator()
{
  newest = 1;
  lock_exclusive();
  if
  :: enqueued != 0 -> looked_at[0] = false    /* empty: truncated, and set aside */
  :: else
  fi;
  unlock_exclusive()
}

init {
  atomic { looked_at[0] = true; looked_at[1] = true; run enqueuer(); run rotator() }
  (_nr_pr == 1);
#ifndef CLAIMERS_LOOK_AT_ALL
  assert(looked_at[enqueued])             /* else: nobody finds it */
#endif
}
#endif
