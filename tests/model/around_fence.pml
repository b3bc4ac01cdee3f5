/*
 * Around the fence: what a decision on a slot rests on.
 *
 * What is checked, each in a scenario of its own: what reaches the disk and in
 * which order; fence(queue), which ends every token at once; the order in which
 * one call settles several slots; and a row's place that is used again.
 *
 * The one thing to know before changing it: the scenarios share nothing but a
 * few names.  Each is as small as the rule allows, so that a reader can keep all
 * of it in mind.
 *
 * Compile with one scenario (SCENE_...) and at most one broken rule; README.md
 * lists them and run.sh runs them all.
 */

/* ------------------------------------------------------------------ */
#ifdef SCENE_FLUSH
/*
 * A settlement that committed asynchronously.  Whoever finds the outcome writes
 * GONE into the slot, and the page may be written out before the commit record.
 */
bool committed = true;          /* the commit log, in memory */
bool gone;                      /* the slot, in memory */
bool d_committed, d_gone;       /* and what has reached the disk of either */
bool down;

proctype resolver()
{
  bool flushed;

#ifdef RULE_21_GONE_BEFORE_COMMIT_IS_FLUSHED
  flushed = true;
#else
  if
  :: flushed = d_committed                /* asks ... */
  :: d_step {                             /* ... or sees to it */
      if
      :: !down -> d_committed = true
      :: else
      fi;
      flushed = d_committed
    }
  fi;
#endif
  d_step {
    if
    :: flushed && !down -> gone = true
    :: else
    fi
  };
  flushed = false
}

proctype disk()
{
  do
  :: d_step { !down; d_gone = gone }
  :: d_step { !down; d_committed = committed }
  :: down -> break
  od
}

init {
  atomic { run resolver(); run disk() }
  d_step { down = true; gone = d_gone; committed = d_committed };
  /* With a lost commit the row is back: it is owed. */
  assert(committed || !gone)
}
#endif

/* ------------------------------------------------------------------ */
#ifdef SCENE_CLOCK
/*
 * What a worker was told it has, against what a crash leaves of it.  Claim and
 * extend have no transaction id, so nothing flushes for them.
 */
#define END 4
byte now;
byte deadline, d_deadline;      /* 0: not claimed */
bool crashed;
byte trusts;                    /* until when the worker believes it holds the message */

#ifdef DESIGN_CLAIM_NOT_FLUSHED
#define claim_flush skip
#else
#define claim_flush d_deadline = deadline
#endif
#ifdef RULE_22_EXTEND_NOT_FLUSHED
#define extend_flush skip
#else
#define extend_flush d_deadline = deadline
#endif

/* The answer arrives, unless the session met the crash. */
inline answer()
{
  d_step {
    if
    :: saw == crashed -> trusts = told
    :: else
    fi
  }
}

proctype holder()
{
  byte told;
  bool saw;

end_taken:
  d_step { deadline <= now; deadline = now + 2; told = deadline; saw = crashed };
  claim_flush;
  answer();
end_lost:
  d_step { trusts > now && deadline > now; deadline = now + 3; told = deadline; saw = crashed };
  extend_flush;
  answer();
  d_step { told = 0; saw = false }
}

proctype other()
{
end_taken:
  d_step {
    deadline <= now;
    assert(trusts <= now);              /* else: two holders */
    deadline = now + 2
  }
}

proctype time()
{
  do
  :: now < END -> now++
  :: now == END -> break
  od
}

proctype crash()
{
  d_step { deadline = d_deadline; crashed = true }
}

init {
  /* Who waits for a deadline that never comes is no error here. */
  atomic { run time(); run crash(); run holder(); run other() }
}
#endif

/* ------------------------------------------------------------------ */
#ifdef SCENE_INCARNATION
/*
 * fence(queue): once it has returned, no token of the old incarnation settles
 * anything, on any page.
 */
#define PAGES 2
byte incarnation = 1;
bool page_lock[PAGES];
bool fenced;                    /* fence(queue) has returned */

inline lock(p)
{
  d_step { !page_lock[p]; page_lock[p] = true }
}

proctype verb(byte p)
{
  byte now;

#ifdef RULE_23_INCARNATION_READ_BEFORE_LOCK
  now = incarnation;
  lock(p);
#else
  lock(p);
  now = incarnation;
#endif
  if
  :: now == 1 -> assert(!fenced)          /* writes the slot: else too late */
  :: else
  fi;
  page_lock[p] = false;
  now = 0
}

proctype fence_queue()
{
  byte p;

  incarnation++;
#ifndef RULE_23_NO_PASS_THROUGH_PAGES
  do
  :: p < PAGES -> lock(p); page_lock[p] = false; p++
  :: p == PAGES -> break
  od;
#endif
  fenced = true;
  p = 0
}

init {
  atomic { run verb(0); run verb(1); run fence_queue() }
}
#endif

/* ------------------------------------------------------------------ */
#ifdef SCENE_ORDER
/* Two calls that settle the same two slots, each waiting for the other's settlements. */
bool in_progress[3];
bool clog[3];                   /* committed */
byte owner[2];                  /* settling ids, 0: none */

inline settle_slot(n, x)
{
  if
  :: d_step { owner[n] == 0 || (!in_progress[owner[n]] && !clog[owner[n]]); owner[n] = x }
  :: owner[n] != 0 && !in_progress[owner[n]] && clog[owner[n]]        /* already settled */
  fi
}

proctype batch(byte x; byte first)
{
  in_progress[x] = true;
#ifdef RULE_24_CALLERS_ORDER
  settle_slot(first, x);
  settle_slot(1 - first, x);
#else
  settle_slot(0, x);
  settle_slot(1, x);
#endif
  if
  :: clog[x] = true
  :: skip
  fi;
  in_progress[x] = false
}

init {
  atomic { run batch(1, 0); run batch(2, 1) }
}
#endif

/* ------------------------------------------------------------------ */
#ifdef SCENE_PLACE
/*
 * A row's place is used again.  Slot A points to message 1; plain SQL deletes
 * that row, vacuum frees the place, and message 2 is put there with slot B.
 */
#ifdef RULE_25_VACUUM_LEAVES_SLOT
#define vacuum_clears false
#else
#define vacuum_clears true
#endif
#ifdef RULE_25_PLACE_NOT_ASKED_AGAIN
#define asks_again false
#else
#define asks_again true
#endif
#ifdef RULE_25_ROW_ID_NOT_ASKED
#define asks_id false
#else
#define asks_id true
#endif

#define HERE 1                  /* the one place; 0 is "none" */
byte row_here = 1;              /* id of the row that lives there, 0: none */
byte place[2];                  /* of slots A and B */
byte id[2];
bool taken[2];
byte handed_out[3];             /* by message id */

proctype sql_and_vacuum()
{
  row_here = 0;
  if
  :: vacuum_clears -> place[0] = 0
  :: else
  fi;
  d_step { row_here = 2; id[1] = 2; place[1] = HERE }
}

proctype taker(byte n)
{
  byte at, seen, want;

  d_step { place[n] != 0 || n == 0; at = place[n]; want = id[n] };
  if
  :: at == 0 -> goto done
  :: at != 0
  fi;
  seen = row_here;                        /* the look, through the slot's TID */
  d_step {
    if
    :: seen != 0 && !taken[n] && (!asks_id || seen == want) && (!asks_again || place[n] == at) ->
      taken[n] = true;
      handed_out[seen]++;
      assert(handed_out[seen] <= 1);  /* else: twice */
      assert(seen == id[n])           /* else: under another message's slot */
    :: else
    fi
  };
done:
  atomic { at = 0; seen = 0; want = 0 }
}

init {
  atomic { place[0] = HERE; id[0] = 1; run sql_and_vacuum(); run taker(0); run taker(1) }
}
#endif
