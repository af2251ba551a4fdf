#pragma once

#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "engine/transformer/kv_cache.h"
#include "kernels/device_array.h"
#include "tests/support/results.h"

namespace draftscope::testing {

/// Keeps the rows of `path` out of those just written to a cache of `device`, as a step does.
inline void commit_path(KvCache& cache, kernels::Backend& backend, const std::vector<int>& path) {
    const std::vector<std::int32_t> nodes(path.begin(), path.end()),
        count = {static_cast<std::int32_t>(path.size())};
    kernels::DeviceArray<std::int32_t> d_path, d_count;
    const Status done = backend.submit([&]() -> Status {
        EXPECT_TRUE(d_path.upload(backend, nodes) && d_count.upload(backend, count));
        const kernels::CompactOp move = cache.path_move(d_path.data(), d_count.data(), cache.free_slots());
        backend.compact(std::span(&move, 1));
        return {};
    });
    EXPECT_TRUE(is_ok(done));
    cache.commit(count[0]);
}

}  // namespace draftscope::testing
