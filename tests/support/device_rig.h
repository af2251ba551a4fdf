#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "base/units.h"
#include "kernels/device.h"
#include "tests/support/tiny_model.h"
#include "tests/support/twin_device.h"

/// What tests of an engine with a device run: the twin that computes here, and a GPU where there is one.
namespace draftscope::testing {

inline constexpr int vocab = 13;

inline ModelFile tiny() {
    TinyModelOptions options;
    options.vocab = vocab;
    return make_tiny_model(21, options);
}

inline std::vector<std::vector<TokenId>> prompts() {
    // The last one is longer than a prefill chunk and than an attention block.
    std::vector<std::vector<TokenId>> all = {{5}, {}, {}};
    for (int i = 0; i < 24; ++i) all[1].push_back(i % 6);
    Rng rng(3);
    for (int i = 0; i < 131; ++i) all[2].push_back(static_cast<TokenId>(rng.below(vocab)));
    return all;
}

/// "twin", or "cuda" where there is one; `why_not` says why it is a twin after all.
struct TwinExec {
    explicit TwinExec(const std::string& kind = "twin") {
        if (kind == "cuda") {
            auto opened = kernels::open_cuda();
            if (opened.ok()) {
                exec = kernels::make_device_exec(2, std::move(*opened));
                return;
            }
            why_not = opened.error().message;
        }
        auto made = std::make_unique<TwinDevice>();
        twin = made.get();
        exec = kernels::make_device_exec(2, std::move(made));
    }
    explicit TwinExec(std::unique_ptr<kernels::Device> device)
        : exec(kernels::make_device_exec(2, std::move(device))) {}
    TwinDevice* twin = nullptr;
    std::unique_ptr<kernels::Exec> exec;
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
