// Limits of a message's envelope that hold for every queue. Bytes, not characters.
#pragma once

namespace baton {

constexpr int kMaxMessageIdBytes = 255;
constexpr int kMaxRoutingKeyBytes = 255;
constexpr int kMaxMessageClassBytes = 63;
constexpr int kMaxPayloadRefBytes = 2048;
constexpr int kMaxWorkerBytes = 63;
constexpr int kMaxReasonBytes = 8192;
constexpr int kMaxErrorBytes = 65536;
constexpr int kMinPriority = 1;
constexpr int kMaxPriority = 10;
constexpr int kDefaultPriority = 5;
constexpr int kMaxClaimItems = 10000;
constexpr int kMaxBatchItems = 100000;

}  // namespace baton
