#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "base/units.h"
#include "kernels/backend.h"
#include "tests/support/tiny_model.h"
#include "tests/support/twin_device.h"

/// A tiny model, prompts and devices for engine tests: TwinDevice, and a GPU if one is available.
namespace draftscope::testing {

inline constexpr int vocab = 13;

inline ModelFile tiny() {
    TinyModelOptions options;
    options.vocab = vocab;
    return make_tiny_model(21, options);
}

inline std::vector<std::vector<TokenId>> prompts() {
    // The last prompt is longer than what the CPU runs at once and attention_block.
    std::vector<std::vector<TokenId>> all = {{5}, {}, {}};
    for (int i = 0; i < 24; ++i) all[1].push_back(i % 6);
    Rng rng(3);
    for (int i = 0; i < 131; ++i) all[2].push_back(static_cast<TokenId>(rng.below(vocab)));
    return all;
}

/// A TwinDevice, or a GPU if `kind` is "cuda". If no GPU can be opened, it is the TwinDevice
/// and `why_not` holds the reason.
struct TwinExec {
    explicit TwinExec(const std::string& kind = "twin") {
        if (kind == "cuda") {
            auto opened = kernels::open_cuda({.threads = 2});
            if (opened.ok()) {
                exec = std::move(*opened);
                return;
            }
            why_not = opened.error().message;
        }
        auto made = std::make_unique<TwinDevice>();
        twin = made.get();
        exec = std::move(made);
    }
    explicit TwinExec(std::unique_ptr<kernels::Backend> backend) : exec(std::move(backend)) {}
    TwinDevice* twin = nullptr;  ///< owned by `exec`; null for other devices
    std::unique_ptr<kernels::Backend> exec;
    std::string why_not;
};

inline auto engine_device_kinds() {
#if defined(DS_HAVE_CUDA)
    return ::testing::Values("twin", "cuda");
#else
    return ::testing::Values("twin");
#endif
}
inline std::string kind_of(const ::testing::TestParamInfo<std::string>& instance) {
    return instance.param;
}

}  // namespace draftscope::testing
