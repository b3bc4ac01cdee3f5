// A lane is the unit of ordering inside a queue: partition x priority band x kind. Its number is part of the
// on-disk format (map pages belong to one lane; a moved row remembers its lane), so the packing never changes.
#pragma once

#include <cstdint>

namespace baton {

enum class LaneKind : uint32_t { kNew = 0, kRetry = 1, kBackfill = 2 };

constexpr uint32_t kDefaultBand = 5;  // priority 1 (last) to 10 (first)

constexpr uint32_t pack_lane(uint32_t partition, uint32_t band, LaneKind kind) {
  return (partition << 8) | (band << 2) | static_cast<uint32_t>(kind);
}

constexpr uint32_t lane_partition(uint32_t lane) { return lane >> 8; }
constexpr uint32_t lane_band(uint32_t lane) { return (lane >> 2) & 0x3f; }
constexpr LaneKind lane_kind(uint32_t lane) { return static_cast<LaneKind>(lane & 3); }

// Lane of a plain message: stored as NULL in the row.
constexpr uint32_t kDefaultLane = pack_lane(0, kDefaultBand, LaneKind::kNew);

}  // namespace baton
