/*
 * The fence: what may happen to one slot, and in which order it is decided.
 *
 * What is checked: no message is settled twice, none is lost, none is handed to
 * somebody while another holds it, and no token settles a claim that is not its
 * own.  Rows are left out: a claimer also looks at the row, and that would hide
 * a slot that says the wrong thing.  Here the slot alone must be right.
 *
 * The one thing to know before changing it: the verbs are in slot.pml, and a
 * process that only sets the stage must not decide anything about the slot.
 *
 * Compile with one scenario (SCENE_...) and at most one broken rule; README.md
 * lists them and run.sh runs them all.
 */

#include "slot.pml"

/* ------------------------------------------------------------------ */
#ifdef SCENE_SETTLE
/* One claim, its token used over two connections, its lease running out, two others waiting. */
init {
  LOOK_LOCALS
  held_by = 1;
  atomic {
    run settler(1, 1, 1, acked); run settler(2, 1, 1, acked); run clock(); run clock();
    run worker(3); run worker(4)
  }
  (_nr_pr == 1);
  check_end()
}
#endif

/* ------------------------------------------------------------------ */
#ifdef SCENE_VERBS
/*
 * Every other verb, while a settlement with the same token is open.  Those that
 * act at once find "busy" and leave the slot alone; extend and start may go
 * ahead because they do not touch the settling id.
 */
#define open (s_state == settling && s_out == running)
#ifdef RULE_17_HAND_BACK_OVER_SETTLING
#define hand_back_over open
#else
#define hand_back_over false
#endif
#ifdef RULE_17_REVOKE_OVER_SETTLING
#define revoke_over open
#else
#define revoke_over false
#endif
#ifdef RULE_17_REAPER_OVER_SETTLING
#define reaper_over open
#else
#define reaper_over false
#endif
#ifdef RULE_17_RELEASE_OVER_SETTLING
#define release_over open
#else
#define release_over false
#endif
#define live (s_nonce == 1 && !past_deadline)

inline hand_back()
{
  look();
  d_step {
    if
    :: unchanged && live && (held_claim || hand_back_over) ->
      state = ready; kind = none; xid = 0; nonce = 0; held_by = 0
    :: else
    fi
  };
  forget()
}

/* Takes the work away from a wedged worker, in time or not. */
inline revoke()
{
  look();
  d_step {
    if
    :: unchanged && s_nonce == 1 && (held_claim || revoke_over) ->
      state = ready; kind = none; xid = 0; nonce = 0; held_by = 0
    :: else
    fi
  };
  forget()
}

inline extend()
{
  look();
  d_step {
    if
    :: unchanged && live && (held_claim || open) ->
#ifdef RULE_17_EXTEND_RESETS_SETTLING
      state = claimed; kind = none; xid = 0;
#endif
      expired = false
    :: else
    fi
  };
  forget()
}

inline start()
{
  look();
  d_step {
    if
    :: unchanged && live && (held_claim || open) ->
#ifdef RULE_17_START_RESETS_SETTLING
      state = claimed; kind = none; xid = 0;
#endif
      skip
    :: else
    fi
  };
  forget()
}

/* The reaper sets an expired message aside in a transaction of its own. */
inline reap(x)
{
  begin(x);
  look();
  d_step {
    if
    :: unchanged && past_deadline && (held_claim || reaper_over) ->
      state = settling; kind = quarantined; xid = x; out = ok
    :: else
    fi
  };
  forget();
  if
  :: out == ok -> commit(x, true)
  :: abort(x)
  fi
}

inline release(x)
{
  begin(x);
  look();
  d_step {
    if
    :: unchanged && live && (held_claim || release_over) ->
      state = settling; kind = released; xid = x; out = ok
    :: else
    fi
  };
  forget();
  if
  :: out == ok -> let_go(1); commit(x, false)
  :: abort(x)
  fi
}

proctype meddler()
{
  LOOK_LOCALS
  mtype out;

  if
  :: hand_back()
  :: revoke()
  :: extend()
  :: start()
  :: reap(2)
  :: release(2)
  fi;
  out = 0
}

init {
  LOOK_LOCALS
  held_by = 1;
  atomic { run settler(1, 1, 1, acked); run meddler(); run clock(); run worker(3) }
  (_nr_pr == 1);
  check_end()
}
#endif

/* ------------------------------------------------------------------ */
#ifdef SCENE_SAVEPOINT
/*
 * BEGIN (1); SAVEPOINT (2); ack; RELEASE or ROLLBACK TO; ack again; COMMIT or
 * ROLLBACK; and somebody else who takes the message when its lease is over.
 */
#ifdef RULE_13_TOP_ID_WRITTEN
#define SUB 1
#else
#define SUB 2
#endif
#ifdef RULE_16_OWN_SUBTRANSACTION_NOT_KNOWN
#define own_id (s_xid == 1)
#else
#define own_id (s_xid == 1 || s_xid == 2)
#endif

proctype nested()
{
  LOOK_LOCALS
  mtype out;
  byte standing;               /* settlements that still stand in this transaction */
  bool sub_undone;

  begin(1);
  begin(2);
  settle(1, 1, acked, SUB, own_id, out);
  d_step { standing = (out == ok -> 1 : 0) };
  if
  :: skip                                 /* RELEASE SAVEPOINT: shares the fate of 1 */
  :: d_step { standing = 0; sub_undone = true };
    abort(2)
  fi;
  settle(1, 1, acked, 1, own_id, out);
  d_step {
    if
    :: out == ok -> standing++
    :: else
    fi
  };
  assert(standing <= 1);                   /* else: its effects stand twice */
  if
  :: let_go(1);
    d_step {
      clog[1] = true;
      clog[2] = !sub_undone;
      settled = settled + standing;
      assert(settled <= 1)
    };
    d_step { in_progress[1] = false; in_progress[2] = false }
  :: d_step { in_progress[1] = false; in_progress[2] = false }
  fi;
  d_step { out = 0; standing = 0; sub_undone = false }
}

init {
  LOOK_LOCALS
  held_by = 1;
  atomic { run nested(); run clock(); run worker(3) }
  (_nr_pr == 1);
  check_end()
}
#endif

/* ------------------------------------------------------------------ */
#ifdef SCENE_FORGOTTEN
/*
 * Claims are not flushed here (a queue may choose that); a crash takes the slot
 * back to what had reached the disk.  A worker is a client: it lives on with
 * its token.  A prepared settlement lives on as well, still in progress.
 */
byte token1, gen1;
mtype out1;
mtype d_state = ready;
byte  d_nonce, d_generation, d_xid;

/* Everything logged so far reaches the disk: a commit does it, or time. */
inline flush()
{
  d_step { d_state = state; d_nonce = nonce; d_generation = generation; d_xid = xid }
}

inline crash()
{
  d_step {
    state = d_state; nonce = d_nonce; generation = d_generation; xid = d_xid;
    kind = (state == settling -> acked : none);
#ifdef DESIGN_PREPARED_TAKEN_FOR_ABORTED
    prepared = false;
#endif
    in_progress[1] = prepared;
    expired = true;                     /* by the time somebody comes back */
    held_by = 0
  }
}

/* COMMIT PREPARED or ROLLBACK PREPARED, from any session. */
proctype finisher()
{
  if
  :: commit(1, true)
  :: abort(1)
  fi
}

init {
  LOOK_LOCALS
  bool prepared, finish;

  d_step { state = ready; nonce = 0; generation = 0; nonces = 0 };
  claim(token1, gen1);
  if
  :: flush()
  :: skip
  fi;
  if
  :: skip
  :: begin(1);
    settle(token1, gen1, acked, 1, (s_xid == 1), out1);
    flush();
    if
    :: skip                             /* the crash ends it */
    :: d_step { prepared = true; finish = true }
    fi
  fi;
  crash();
  atomic {
    run settler(2, token1, gen1, acked);
    run worker(3);
    if
    :: finish -> run finisher()
    :: else
    fi
  };
  (_nr_pr == 1);
  check_end()
}
#endif

/* ------------------------------------------------------------------ */
#ifdef SCENE_VOID
/*
 * The transaction that claimed has rolled back.  Its callback leaves a hint;
 * others may claim before anybody has worked the hint off, since the lease runs
 * out as well; and the client may still use its token.
 */
byte void_hint;

#ifdef RULE_18_VOID_WITHOUT_NONCE
#define meant true
#else
#define meant (s_nonce == void_hint)
#endif
#ifdef RULE_17_VOID_OVER_SETTLING
#define voidable (held_claim || (s_state == settling && s_out == running))
#else
#define voidable held_claim
#endif

proctype voider()
{
  LOOK_LOCALS

  void_hint != 0;
  look();
  d_step {
    if
    :: unchanged && meant && voidable ->
      count_failure();
      state = ready; kind = none; xid = 0; nonce = 0
    :: else
    fi
  };
  forget()
}

init {
  LOOK_LOCALS
  atomic {
    void_hint = nonce;                  /* it rolled back before it settled anything */
    run voider(); run clock();
    run settler(1, 1, 1, acked);
    run worker(2); run worker(3)
  }
  (_nr_pr == 1);
  check_end()
}
#endif

/* ------------------------------------------------------------------ */
#ifdef SCENE_COUNT
/*
 * The second failure quarantines.  The claim at hand has run out; workers,
 * movers and claimers that do a mover's work come by in any order, and each
 * mover may die before it commits.
 */
#define LIMIT 2

#ifdef RULE_20_COUNTED_AHEAD_OF_QUARANTINE
#define QUARANTINED_FAILURES failures
#else
#define QUARANTINED_FAILURES (failures + 1)
#endif

proctype mover(byte x)
{
  LOOK_LOCALS
  byte carried;               /* what the moved row will say */

  begin(x);
  look();
#ifdef RULE_20_COUNTED_AHEAD_OF_QUARANTINE
  d_step {
    if
    :: unchanged && held_claim && expired && failures + 1 >= LIMIT -> count_failure()
    :: else
    fi
  };
#endif
  d_step {
    if
    :: unchanged && held_claim && expired && QUARANTINED_FAILURES >= LIMIT ->
      state = settling; kind = quarantined; xid = x;
      carried = QUARANTINED_FAILURES
    :: else
    fi
  };
  forget();
  if
  :: carried != 0 ->
    assert(carried == LIMIT);           /* else: one failure counted twice */
    commit(x, true)
  :: abort(x)
  fi;
  carried = 0
}

/* Passes over the expired slot; it tells others of it and changes nothing. */
proctype reaper()
{
  LOOK_LOCALS

  look();
#ifdef RULE_20_EXPIRY_COUNTED_IN_PLACE
  d_step {
    if
    :: unchanged && held_claim && expired -> count_failure()
    :: else
    fi
  };
#endif
  forget()
}

/* A claim below the limit, whose holder does not come back. */
proctype loser()
{
  LOOK_LOCALS
  byte token, gen;

  if
  :: failures + 1 < LIMIT ->
    claim(token, gen);
    if
    :: token != 0 -> run_out()
    :: else
    fi
  :: else
  fi;
  d_step { token = 0; gen = 0 }
}

init {
  LOOK_LOCALS
  atomic {
    expired = true;
    run loser(); run reaper(); run reaper(); run mover(1); run mover(2)
  }
  (_nr_pr == 1);
  check_end()
}
#endif
