#!/usr/bin/env bash
#
# Checks every variant of the models: what must hold holds exhaustively, and
# each wrong reading of a rule fails, and fails for the reason it is there for.
#
# Works in a temporary directory and on one core.  Each line of the table below
# is one run:
#
#   hold MODEL SCENE [SWITCH...]
#   fail MODEL SCENE SWITCH... : EVIDENCE
#
# EVIDENCE is a piece of the checker's verdict.  A run that ends in any other
# way (it does not compile, the search is cut short, another check fires) is a
# failure of this script: a switch that fails for the wrong reason shows nothing.
#
# Usage: run.sh [PATTERN]   only the lines of the table that contain PATTERN
#
# MODEL_GCC_FLAGS is handed to the compiler of the checker.  -DNOREDUCE turns
# partial order reduction off: the same verdicts, several times the states.

set -u -o pipefail
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
pattern=${1:-}
read -r -a extra <<<"${MODEL_GCC_FLAGS:-}"
passed=0
failed=0

for tool in spin gcc; do
  if ! command -v "$tool" >/dev/null; then
    echo "model: $tool is not installed" >&2
    exit 2
  fi
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

table() {
  cat <<'TABLE'
hold reserve_then_look ENQUEUE
fail reserve_then_look ENQUEUE RULE_01_LOOK_BEFORE_RESERVE : (delivered[i]>=1)
fail reserve_then_look ENQUEUE RULE_02_FRONTIER_READ_BEFORE_VISIBLE : (delivered[i]>=1)
fail reserve_then_look ENQUEUE DESIGN_INVISIBLE_ROW_DROPPED : (delivered[i]>=1)
fail reserve_then_look ENQUEUE DESIGN_OVERFLOW_DROPPED : (delivered[i]>=1)
hold reserve_then_look PREPARED
fail reserve_then_look PREPARED DESIGN_PREPARED_UNLISTED : (delivered[i]>=1)
hold reserve_then_look DYING
fail reserve_then_look DYING RULE_03_RANGE_NOT_GIVEN_BACK : (delivered[i]>=1)
fail reserve_then_look DYING RULE_03_POPPED_NOT_GIVEN_BACK : (delivered[i]>=1)
fail reserve_then_look DYING RULE_03_CAP_KEEPS_REST : (delivered[i]>=1)
hold reserve_then_look CHANGE
fail reserve_then_look CHANGE RULE_04_HINT_BEFORE_RELEASE : (delivered[i]>=1)
fail reserve_then_look CHANGE RULE_04_HINT_BEFORE_HAND_BACK : (delivered[i]>=1)
fail reserve_then_look CHANGE RULE_04_HINT_BEFORE_VOID : (delivered[i]>=1)
fail reserve_then_look CHANGE RULE_04_HINT_BEFORE_EXPIRY : (delivered[i]>=1)
fail reserve_then_look CHANGE RULE_05_ABORTED_SETTLEMENT_SILENT : (delivered[i]>=1)
hold reserve_then_look LOCKED
fail reserve_then_look LOCKED RULE_05_LOCKED_ROW_DROPPED : (delivered[i]>=1)
hold reserve_then_look REAPER
fail reserve_then_look REAPER RULE_06_REAPER_PUBLISHES_ONCE : (delivered[i]>=1)
hold reserve_then_look SWEEP
fail reserve_then_look SWEEP RULE_03_SWEEP_NOT_GIVEN_BACK : (delivered[i]>=1)
fail reserve_then_look SWEEP RULE_07_SWEEP_THEN_CLEAR : (delivered[i]>=1)
fail reserve_then_look SWEEP RULE_08_SWEEP_ENDS_AT_TOP : (delivered[i]>=1)
hold reserve_then_look STARVE
hold reserve_then_look STARVE RULE_08_SWEEP_FROM_BOTTOM SWEEP_CLAIMS
fail reserve_then_look STARVE RULE_08_SWEEP_FROM_BOTTOM : acceptance cycle
fail reserve_then_look STARVE RULE_08_LOCKED_ROW_BEFORE_SWEEP : acceptance cycle
hold reserve_then_look RESTART
hold reserve_then_look RESTART RULE_09_FRONTIER_AT_LAST_APPENDED SWEEP_AT_RESTART
fail reserve_then_look RESTART RULE_09_FRONTIER_AT_LAST_APPENDED : (delivered[i]>=1)
fail reserve_then_look RESTART DESIGN_PREPARED_FORGOTTEN_AT_RESTART : (delivered[i]>=1)
hold reserve_then_look SUMMARY
fail reserve_then_look SUMMARY RULE_10_SUMMARY_OUTSIDE_LOCK : (delivered[i]>=1)
fail reserve_then_look SUMMARY RULE_10_INVISIBLE_IS_DEAD : (delivered[i]>=1)
hold reserve_then_look WAIT
fail reserve_then_look WAIT RULE_11_LOOK_THEN_REGISTER : (asleep&&
fail reserve_then_look WAIT RULE_11_APPENDED_AFTER_CALLBACK : (asleep&&
fail reserve_then_look WAIT RULE_11_PUT_BACK_SILENT : (asleep&&
hold reserve_then_look WAIT_DYING
fail reserve_then_look WAIT_DYING RULE_11_DYING_WAITER_SILENT : (asleep&&
hold fence SETTLE
fail fence SETTLE RULE_12_COMMITTED_ASKED_FIRST : (settled<=1)
fail fence SETTLE RULE_15_DECIDED_ON_EARLIER_LOOK : (settled<=1)
fail fence SETTLE RULE_15_NO_LOOK_AFTER_WAIT : (settled<=1)
fail fence SETTLE RULE_17_CLAIM_OVER_SETTLING : (settled<=1)
hold fence SAVEPOINT
fail fence SAVEPOINT RULE_13_TOP_ID_WRITTEN : (settled==1)==
fail fence SAVEPOINT RULE_16_OWN_WAITED_FOR : invalid end state
fail fence SAVEPOINT RULE_16_OWN_SUBTRANSACTION_NOT_KNOWN : invalid end state
fail fence SAVEPOINT RULE_16_OWN_TAKEN_AGAIN : (standing<=1)
hold fence FORGOTTEN
fail fence FORGOTTEN RULE_14_GENERATION_ALONE : (nonce==token)
fail fence FORGOTTEN DESIGN_PREPARED_TAKEN_FOR_ABORTED : (settled==0)
hold fence VERBS
fail fence VERBS RULE_17_RELEASE_OVER_SETTLING : (settled==1)==
fail fence VERBS RULE_17_HAND_BACK_OVER_SETTLING : (settled==1)==
fail fence VERBS RULE_17_REVOKE_OVER_SETTLING : (settled==1)==
fail fence VERBS RULE_17_REAPER_OVER_SETTLING : (settled<=1)
fail fence VERBS RULE_17_EXTEND_RESETS_SETTLING : (settled==1)==
fail fence VERBS RULE_17_START_RESETS_SETTLING : (settled==1)==
hold fence VOID
fail fence VOID RULE_17_VOID_OVER_SETTLING : (settled==1)==
fail fence VOID RULE_18_VOID_WITHOUT_NONCE : (held_by==0)
fail fence VOID RULE_19_ROLLED_BACK_TOKEN_NEVER_SETTLES : (token!=1)
hold fence COUNT
fail fence COUNT RULE_20_COUNTED_AHEAD_OF_QUARANTINE : ((counted>>nonce)&1)==0
fail fence COUNT RULE_20_EXPIRY_COUNTED_IN_PLACE : ((counted>>nonce)&1)==0
hold around_fence FLUSH
fail around_fence FLUSH RULE_21_GONE_BEFORE_COMMIT_IS_FLUSHED : (committed||
hold around_fence CLOCK
fail around_fence CLOCK RULE_22_EXTEND_NOT_FLUSHED : (trusts<=now)
fail around_fence CLOCK DESIGN_CLAIM_NOT_FLUSHED : (trusts<=now)
hold around_fence INCARNATION
fail around_fence INCARNATION RULE_23_INCARNATION_READ_BEFORE_LOCK : !(fenced)
fail around_fence INCARNATION RULE_23_NO_PASS_THROUGH_PAGES : !(fenced)
hold around_fence ORDER
fail around_fence ORDER RULE_24_CALLERS_ORDER : invalid end state
hold around_fence PLACE
hold around_fence PLACE RULE_25_VACUUM_LEAVES_SLOT
hold around_fence PLACE RULE_25_PLACE_NOT_ASKED_AGAIN
hold around_fence PLACE RULE_25_ROW_ID_NOT_ASKED
hold around_fence PLACE RULE_25_VACUUM_LEAVES_SLOT RULE_25_PLACE_NOT_ASKED_AGAIN
fail around_fence PLACE RULE_25_ROW_ID_NOT_ASKED RULE_25_VACUUM_LEAVES_SLOT : (handed_out[seen]<=1)
fail around_fence PLACE RULE_25_ROW_ID_NOT_ASKED RULE_25_PLACE_NOT_ASKED_AGAIN : (handed_out[seen]<=1)
hold rotation TRUNCATE
hold rotation TRUNCATE RULE_27_LOCK_NOT_HELD_TO_THE_END
hold rotation TRUNCATE RULE_27_INSERTER_NOT_COUNTED
fail rotation TRUNCATE RULE_26_MAP_CHECKED_BEFORE_LOCK : (wiped[1])
fail rotation TRUNCATE RULE_27_LOCK_NOT_HELD_TO_THE_END RULE_27_INSERTER_NOT_COUNTED : (wiped[1])
fail rotation TRUNCATE RULE_28_EXPIRED_CLAIM_IS_SETTLED : (wiped[0])
hold rotation MOVE
fail rotation MOVE RULE_29_MOVED_WITHOUT_SETTLING_ID : (settled<=1)
hold rotation TOKEN
hold rotation TOKEN RULE_30_NONCE_NOT_COMPARED RULE_30_ID_NOT_COMPARED
hold rotation TOKEN RULE_30_EPOCH_NOT_COMPARED RULE_30_ID_NOT_COMPARED
hold rotation TOKEN RULE_30_EPOCH_NOT_COMPARED RULE_30_NONCE_NOT_COMPARED
fail rotation TOKEN RULE_30_EPOCH_NOT_COMPARED RULE_30_NONCE_NOT_COMPARED RULE_30_ID_NOT_COMPARED : (id==1)
fail rotation TOKEN RULE_31_LEASE_NOT_WAITED_FOR : (lease_over||
hold rotation MOVED
fail rotation MOVED RULE_32_NO_VERDICT : (settled_by==1)
hold rotation HINTS
hold rotation HINTS HINTS_CARRY_EPOCH
fail rotation HINTS RULE_33_HINTS_RESET_AFTER_UNLOCK : delivered
hold rotation DUMP
hold rotation DUMP ONLY_HORIZON
hold rotation DUMP ONLY_GUARD
fail rotation DUMP RULE_34_NEITHER_HORIZON_NOR_GUARD : (emptied)
fail rotation DUMP RULE_34_GUARD_SET_AFTERWARDS : (emptied)
hold rotation NEWEST
hold rotation NEWEST DESIGN_NEWEST_NOT_READ_AGAIN CLAIMERS_LOOK_AT_ALL
fail rotation NEWEST DESIGN_NEWEST_NOT_READ_AGAIN : looked_at[enqueued]
TABLE
}

pass() {
  passed=$((passed + 1))
  printf 'ok      %s\n' "$1"
}

surprise() {
  failed=$((failed + 1))
  printf 'NOT OK  %s: %s\n' "$1" "$2"
  if [ -n "${3:-}" ] && [ -s "$3" ]; then
    sed 's/^/        | /' "$3" | head -n 20
  fi
}

# Runs the checker; its verdict is in $work/run/pan.out.  False: there is none.
check() {
  local model=$1 scene=$2
  shift 2
  local spin_flags=("-DSCENE_$scene") gcc_flags=(-O0 -DMEMLIM=4000 "${extra[@]}") pan_flags=(-m100000 -w16)
  local switch
  for switch in "$@"; do
    spin_flags+=("-D$switch")
  done
  if [ "$scene" = STARVE ]; then
    # The question is whether something goes on for ever, not what state is reached.
    pan_flags+=(-a)
    gcc_flags+=(-DNOREDUCE)
  else
    gcc_flags+=(-DSAFETY)
  fi
  # An optimised checker takes longer to compile than it saves.

  rm -rf "$work/run"
  mkdir "$work/run"
  cp "$here"/*.pml "$work/run/"
  (
    cd "$work/run" || exit 1
    spin -a "${spin_flags[@]}" "$model.pml" >spin.out 2>&1 || exit 1
    # spin does not always say so with its exit status
    ! grep -q 'Error' spin.out || exit 1
    gcc -w "${gcc_flags[@]}" -o pan pan.c >>spin.out 2>&1 || exit 1
    ./pan "${pan_flags[@]}" >pan.out 2>&1
    grep -q 'errors: [0-9]' pan.out
  )
}

one_run() {
  kind=$1
  local line=$2 evidence=$3
  shift 3
  local out=$work/run/pan.out states

  if ! check "$@"; then
    surprise "$line" 'no verdict' "$work/run/spin.out"
    return
  fi
  if grep -q -e 'max search depth too small' -e 'out of memory' -e 'memory limit' "$out"; then
    surprise "$line" 'the search was cut short' "$out"
    return
  fi
  if [ "$kind" = hold ]; then
    if ! grep -q 'errors: 0$' "$out" || grep -q 'Search not completed' "$out" \
      || ! grep -q '^Full statespace search' "$out"; then
      surprise "$line" 'should hold' "$out"
      return
    fi
    states=$(awk '/states, stored/ { print $1; exit }' "$out")
    pass "$line ($states states)"
  else
    if ! grep -q 'errors: 1$' "$out"; then
      surprise "$line" 'should fail and holds' "$out"
      return
    fi
    if ! grep '^pan:1: ' "$out" | grep -qF -- "$evidence"; then
      surprise "$line" "fails, but not with \"$evidence\"" "$out"
      return
    fi
    pass "$line"
  fi
}

while read -r kind model scene rest; do
  evidence=
  switches=$rest
  if [ "$kind" = fail ]; then
    evidence=${rest#* : }
    switches=${rest%% : *}
  fi
  line="$kind $model $scene${switches:+ $switches}"
  case $line in
    *"$pattern"*) ;;
    *) continue ;;
  esac
  # shellcheck disable=SC2086 # a list of names without blanks
  one_run "$kind" "$line" "$evidence" "$model" "$scene" $switches
done < <(table)

# The table against the models and the README: a switch or a scenario that is
# only in one of them checks nothing, however green the lines above are.
if [ -z "$pattern" ]; then
  in_models=$(grep -ohE '\b(RULE_[0-9]{2}|DESIGN)_[A-Z_]+' "$here"/*.pml | sort -u)
  failing=$(table | sed -n 's/^fail \(.*\) : .*/\1/p' | tr ' ' '\n' | grep -E '^(RULE|DESIGN)_' | sort -u)
  in_readme=$(grep -ohE '\b(RULE_[0-9]{2}|DESIGN)_[A-Z_]+' "$here/README.md" | sort -u)
  if [ "$in_models" = "$failing" ] && [ "$in_models" = "$in_readme" ]; then
    pass 'every switch of the models has a failing run and is explained in README.md'
  else
    printf '%s\n' "$in_models" "$failing" "$in_readme" | sort | uniq -c | awk '$1 != 3 { print $2 }' >"$work/odd"
    surprise 'switches' 'not the same in models, table and README.md' "$work/odd"
  fi

  rules=$(printf '%s\n' "$failing" | sed -n 's/^RULE_\([0-9][0-9]\)_.*/\1/p' | sort -u)
  if [ "$rules" = "$(seq -w 1 34)" ]; then
    pass 'each of the 34 rules has a switch'
  else
    surprise 'rules' 'some have no switch'
  fi

  scenes=$(grep -ohE '\bSCENE_[A-Z_]+' "$here"/*.pml | sed 's/^SCENE_//' | grep -v '^_*$' | sort -u)
  held=$(table | awk '$1 == "hold" && NF == 3 { print $3 }' | sort -u)
  shaken=$(table | awk '$1 == "fail" { print $3 }' | sort -u)
  if [ "$scenes" = "$held" ] && [ "$scenes" = "$shaken" ]; then
    pass 'every scenario holds as it stands, and some switch makes it fail'
  else
    surprise 'scenarios' 'one of them never holds or never fails'
  fi
fi

echo "model: $passed passed, $failed failed"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
