// Reading the maps of a queue for display: no slot is changed, nothing is published, no lock is held longer than it
// takes to copy a page. What a survey says was true of each slot at the moment its page was copied.
#pragma once

#include "../leasemap/map.hpp"
#include "../pg/queue.hpp"

namespace baton {

struct SurveySlot {
  Slot slot;  // with the outcome of its transaction applied (in memory)
  SlotPhase phase;
  XidStatus status;
  Place place;
};

// Calls visit for every slot that was ever written; visit returns false to end the survey. Needs an active snapshot.
using SurveyVisitor = bool (*)(const SurveySlot& s, const Segment& segment, void* arg);
void survey_segment(const Segment& segment, SurveyVisitor visit, void* arg);
// The long segments of all queues, one after the other; the key hash of a slot is its queue there.
void survey_long_segments(SurveyVisitor visit, void* arg);

// The queue a segment belongs to and its number in the ring. 42704 if the table is no segment of a queue.
Queue* queue_of_segment(Oid heap, int* segment_no);

// 42501 unless the caller may look at the queue.
void require_look(const Queue* queue);

// 55000 for a volatile queue on a standby, where its segments have no files.
void require_segments(const Queue* queue);

// The row of a slot, if the snapshot sees it and it is the slot's own. Values of the columns asked for.
bool fetch_row(Relation heap, const Slot& slot, Snapshot snapshot, const int* columns, int count, Datum* values,
               bool* nulls);

}  // namespace baton
