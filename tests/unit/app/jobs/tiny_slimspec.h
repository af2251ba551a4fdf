#pragma once

#include <string>
#include <vector>

#include "engine/heads/artefact.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/transformer/target.h"
#include "tests/support/results.h"
#include "tests/unit/app/jobs/tiny_files.h"

namespace draftscope::testing {

/// Writes a SlimSpec head for the tiny target and returns its path.
inline std::string save_tiny_slimspec(const TinyFiles& files, int rank) {
    const auto exec = kernels::make_cpu_backend(1);
    const auto target = require(Target::load(files.model(), *exec, kernels::Precision::f32));
    const int hidden = target->config().hidden, vocab = target->config().vocab;
    const std::vector<float> down(rank * hidden, 0.01f), up(rank * vocab, 0.01f);
    ArtefactInfo info;
    info.head = "slimspec";
    info.target = target->config().name;
    info.tokenizer = target->tokenizer()->fingerprint();
    info.vocab = vocab;
    info.hidden = hidden;
    info.parameters["rank"] = std::to_string(rank);
    const std::vector<TensorToSave> tensors = {
        {"down", "F32", {rank, hidden}, std::as_bytes(std::span(down))},
        {"up", "F32", {vocab, rank}, std::as_bytes(std::span(up))}};
    EXPECT_TRUE(is_ok(save_artefact(files.file("slimspec"), info, tensors)));
    return files.file("slimspec");
}

}  // namespace draftscope::testing
