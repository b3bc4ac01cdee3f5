/*
 * One slot and the verbs on it; included by fence.pml, which has the scenarios.
 *
 * The one thing to know before changing it: the order is always look, resolve,
 * lock.  The look and the resolver run without the slot's lock (they may wait
 * and may fail); what is decided under the lock is one d_step, and it starts by
 * asking whether the slot is still what was looked at.
 */

mtype = { ready, claimed, settling, gone };                 /* slot */
mtype = { acked, released, quarantined };                   /* kind */
mtype = { none, running, committed, aborted };              /* transaction */
mtype = { ok, already, stale, over, busy };                 /* answer of a verb */

#define XIDS 5                  /* 1..4; 0 is "no transaction" */

/* ---- the slot ---- */

mtype state = claimed;
mtype kind = none;
byte  xid;                      /* the settling id */
byte  generation = 1;
byte  nonce = 1;
byte  failures;
bool  expired;                  /* the clock has passed the deadline */

/* ---- transactions: the proc array and the commit log ---- */

bool  in_progress[XIDS];
bool  clog[XIDS];               /* committed */

/* ---- what the checks look at ---- */

byte  nonces = 1;               /* strong random in truth: never given twice */
byte  settled;                  /* settlements that ended the message and committed */
byte  held_by;                  /* nonce of the claim whose holder may be working */
byte  counted;                  /* claims (a bit each) that were counted as a failure */

inline begin(x)
{
  in_progress[x] = true
}

/* The commit log first, the proc array second, as the server does it. */
inline commit(x, effect)
{
  d_step {
    clog[x] = true;
    if
    :: effect -> settled++
    :: else
    fi;
    assert(settled <= 1)                /* else: settled twice */
  };
  in_progress[x] = false
}

inline abort(x)
{
  in_progress[x] = false
}

/* ---- look, resolve, lock ---- */

#define LOOK_LOCALS \
  mtype s_state, s_kind, s_out; \
  byte s_xid, s_nonce, s_gen; \
  bool s_expired, s_busy;

inline look()
{
  d_step {
    s_state = state; s_kind = kind; s_xid = xid; s_nonce = nonce;
    s_gen = generation; s_expired = expired;
    s_out = none
  };
  if
  :: s_state == settling -> resolve()
  :: else
  fi
}

inline resolve()
{
#ifdef RULE_12_COMMITTED_ASKED_FIRST
  s_busy = clog[s_xid];
  if
  :: s_busy -> s_out = committed
  :: !s_busy -> s_out = (in_progress[s_xid] -> running : aborted)
  fi;
#else
  s_busy = in_progress[s_xid];
  if
  :: s_busy -> s_out = running
  :: !s_busy -> s_out = (clog[s_xid] -> committed : aborted)
  fi;
#endif
  s_busy = false
}

inline forget()
{
  d_step {
    s_state = 0; s_kind = 0; s_xid = 0; s_nonce = 0; s_gen = 0; s_expired = false; s_out = 0
  }
}

/* Under the slot's lock: is it still what was looked at? */
#ifdef RULE_15_DECIDED_ON_EARLIER_LOOK
#define unchanged true
#define past_deadline s_expired
#else
#define unchanged (state == s_state && xid == s_xid && nonce == s_nonce && generation == s_gen)
#define past_deadline expired
#endif

#ifdef RULE_14_GENERATION_ALONE
#define mine(token, gen) (s_gen == gen)
#else
#define mine(token, gen) (s_nonce == token)
#endif

/* Nobody has it, or whoever had it is out of time. */
#define free_for_claim (s_state == ready \
  || (s_state == claimed && past_deadline) \
  || (s_state == settling && s_out == aborted && past_deadline) \
  || (s_state == settling && s_out == committed && s_kind == released))

#ifdef RULE_17_CLAIM_OVER_SETTLING
#define claim_over (s_state == settling && s_out == running && past_deadline)
#else
#define claim_over false
#endif

/* A claim that nobody has ended yet. */
#define held_claim (s_state == claimed || (s_state == settling && s_out == aborted))

/* ---- claim ---- */

/* Under the slot's lock: the claim that stands there came to nothing. */
inline count_failure()
{
  failures++;
  assert(((counted >> nonce) & 1) == 0);  /* else: counted twice */
  counted = counted | (1 << nonce)
}

inline claim(token, gen)
{
  look();
  d_step {
    if
    :: unchanged && (free_for_claim || claim_over) ->
      assert(settled == 0);           /* else: handed out after it was settled */
      assert(held_by == 0);           /* else: two holders */
      if
      :: held_claim -> count_failure()
      :: else
      fi;
      nonces++;
      generation++;
      nonce = nonces;
      state = claimed; kind = none; xid = 0; expired = false;
      held_by = nonce;
      token = nonce;
      gen = generation
    :: else
    fi
  };
  forget()
}

/* ---- settle ---- */

/*
 * The first half: writes the settling id.  "own" is true for the ids of the
 * caller's transaction.  This is the single form, which waits.
 */
inline settle(token, gen, k, x, own, out)
{
  out = none;
  do
  :: out == none ->
    look();
    if
#ifdef RULE_16_OWN_TAKEN_AGAIN
    :: s_out == running && own -> s_out = aborted
    :: s_out == running && !own ->
#elif defined(RULE_16_OWN_WAITED_FOR)
    :: s_out == running ->
#else
    :: s_out == running && own && mine(token, gen) -> out = already
    :: s_out == running && !own && mine(token, gen) ->
#endif
      !in_progress[s_xid];
#ifdef RULE_15_NO_LOOK_AFTER_WAIT
      s_out = aborted
#else
      s_out = running
#endif
    :: else
    fi;
    d_step {
      if
      :: out != none -> skip
      :: out == none && s_state == settling && s_out == running && mine(token, gen) ->
        skip                        /* waited: from the start */
      :: out == none && !mine(token, gen) -> out = stale
      :: out == none && mine(token, gen) && !(s_state == settling && s_out == running) ->
        if
        :: !unchanged -> skip       /* from the start */
        :: unchanged && (s_state == gone || s_state == ready
                 || (s_state == settling && s_out == committed)) ->
          out = already
        :: unchanged && held_claim && past_deadline -> out = over
        :: unchanged && held_claim && !past_deadline ->
          assert(nonce == token); /* else: another's claim */
#ifdef RULE_19_ROLLED_BACK_TOKEN_NEVER_SETTLES
          assert(token != 1);     /* the promise that we do not make */
#endif
          state = settling; kind = k; xid = x;
          out = ok
        fi
      fi
    }
  :: out != none -> break
  od;
  forget()
}

/* Whoever settles without doubt is no longer working when that commits. */
inline let_go(token)
{
  d_step {
    if
    :: held_by == token -> held_by = 0
    :: else
    fi
  }
}

/* One transaction that settles: BEGIN, verb, COMMIT or ROLLBACK. */
proctype settler(byte x; byte token; byte gen; mtype k)
{
  LOOK_LOCALS
  mtype out;

  begin(x);
  settle(token, gen, k, x, (s_xid == x), out);
  if
  :: out == ok ->
    let_go(token);
    commit(x, k == acked)
  :: abort(x)
  fi;
  out = 0
}

/* The lease of the current claim runs out; its holder knows. */
inline run_out()
{
  d_step { expired = true; held_by = 0 }
}

proctype clock()
{
  run_out()
}

/* Takes the message if it can, and works it off in a transaction of its own. */
proctype worker(byte x)
{
  LOOK_LOCALS
  byte token, gen;
  mtype out;

  claim(token, gen);
  if
  :: token != 0 ->
    begin(x);
    settle(token, gen, acked, x, (s_xid == x), out);
    if
    :: out == ok ->
      let_go(token);
      commit(x, true)
    :: abort(x)
    fi
  :: else
  fi;
  d_step { token = 0; gen = 0; out = 0 }
}

/*
 * The end of most scenarios: what the slot says, read by whoever comes next,
 * is what the transactions did.
 */
inline check_end()
{
  atomic {
    look();
    assert(s_out != running);
    assert((settled == 1) == (s_state == gone
      || (s_state == settling && s_out == committed && s_kind != released)));
    forget()
  }
}
