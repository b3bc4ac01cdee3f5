// See tables.hpp.
#include "tables.hpp"

namespace baton {
namespace {

// Columns of baton_internal.retained_note, in order.
enum NoteColumn : int { kNoteN = 0, kNotePassedAt, kNotePassedXid, kNoteGuardXid, kNoteTruncatedAt, kNoteColumns };

Oid note_oid(const char* name) {
  Oid schema = baton_internal_namespace();
  return OidIsValid(schema) ? get_relname_relid(name, schema) : InvalidOid;
}

// No snapshot given: a new catalog snapshot, so that a transaction with an old one reads what holds now.
SysScanDesc begin_note_scan(Relation notes, int table, ScanKey key) {
  ScanKeyInit(key, kNoteN + 1, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(table));
  return systable_beginscan(notes, note_oid("retained_note_pkey"), true, nullptr, 1, key);
}

}  // namespace

Oid retained_table_oid(int table) {
  char name[NAMEDATALEN];
  snprintf(name, sizeof(name), "retained_%d", table);
  return get_relname_relid(name, baton_data_namespace());
}

int retained_number(Oid relation) {
  char* name = get_rel_name(relation);
  int n = -1;
  if (!name || sscanf(name, "retained_%d", &n) != 1 || n < 0 || n >= kRetainedTables) return -1;
  return retained_table_oid(n) == relation ? n : -1;
}

RetainedNote read_retained_note(int table) {
  RetainedNote note{0, 0, 0, 0};
  Oid oid = note_oid("retained_note");
  if (!OidIsValid(oid)) return note;
  Relation notes = table_open(oid, AccessShareLock);
  ScanKeyData key;
  SysScanDesc scan = begin_note_scan(notes, table, &key);
  HeapTuple t = systable_getnext(scan);
  if (HeapTupleIsValid(t)) {
    Datum values[kNoteColumns];
    bool nulls[kNoteColumns];
    heap_deform_tuple(t, RelationGetDescr(notes), values, nulls);
    if (!nulls[kNotePassedAt]) note.passed_at = DatumGetTimestampTz(values[kNotePassedAt]);
    if (!nulls[kNotePassedXid]) note.passed_xid = U64FromFullTransactionId(DatumGetFullTransactionId(values[kNotePassedXid]));
    if (!nulls[kNoteGuardXid]) note.guard_xid = U64FromFullTransactionId(DatumGetFullTransactionId(values[kNoteGuardXid]));
    if (!nulls[kNoteTruncatedAt]) note.truncated_at = DatumGetTimestampTz(values[kNoteTruncatedAt]);
  }
  systable_endscan(scan);
  table_close(notes, AccessShareLock);
  return note;
}

void write_retained_note(int table, const RetainedNote& note) {
  Relation notes = table_open(note_oid("retained_note"), RowExclusiveLock);
  ScanKeyData key;
  SysScanDesc scan = begin_note_scan(notes, table, &key);
  HeapTuple t = systable_getnext(scan);
  if (HeapTupleIsValid(t)) {
    Datum values[kNoteColumns];
    bool nulls[kNoteColumns] = {false, note.passed_at == 0, note.passed_xid == 0, note.guard_xid == 0, note.truncated_at == 0};
    values[kNoteN] = Int32GetDatum(table);
    values[kNotePassedAt] = TimestampTzGetDatum(note.passed_at);
    values[kNotePassedXid] = FullTransactionIdGetDatum(FullTransactionIdFromU64(note.passed_xid));
    values[kNoteGuardXid] = FullTransactionIdGetDatum(FullTransactionIdFromU64(note.guard_xid));
    values[kNoteTruncatedAt] = TimestampTzGetDatum(note.truncated_at);
    HeapTuple changed = heap_form_tuple(RelationGetDescr(notes), values, nulls);
    CatalogTupleUpdate(notes, &t->t_self, changed);
    CommandCounterIncrement();
  }
  systable_endscan(scan);
  table_close(notes, NoLock);
}

}  // namespace baton
