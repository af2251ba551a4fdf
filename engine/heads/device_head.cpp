#include "engine/heads/device_head.h"

#include <limits>
#include <vector>

#include "base/numel.h"

namespace draftscope {

void leave_no_candidates(DeviceLevel& call, int first_row, int rows) {
    if (call.support_logits != nullptr) return;  // the row's size is 0
    const std::size_t cells = numel(rows, call.k);
    const std::ptrdiff_t first = std::ptrdiff_t{first_row} * call.k;
    const std::vector<std::int32_t> ids(cells, -1);
    const std::vector<float> logits(cells, -std::numeric_limits<float>::infinity());
    call.device.upload(call.ids + first, ids.data(), cells * sizeof(std::int32_t));
    call.device.upload(call.logits + first, logits.data(), cells * sizeof(float));
}

}  // namespace draftscope
