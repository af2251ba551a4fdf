#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/model/architecture.h"
#include "engine/model/model_file.h"

namespace draftscope {

/// "synthetic:NAME" is a target with the dimensions of a published model and random weights: what it computes
/// means nothing, what it costs is real. Everything made with one has to say so. "synthetic:NAME/4" has the
/// first 4 layers alone: embedding, LM head and drafters of full size beside a target that fits.
bool is_synthetic_model(std::string_view spec);

/// Weights are made row by row while they are packed, so only the packed form takes memory. The tokenizer
/// knows single bytes; its other ids read "[1234]". An unknown name is an error that lists the known ones.
/// Mixtures of experts (gpt-oss-20b, qwen3-30b-a3b) have the real LM head, embedding and attention widths and
/// a few dense layers in place of their own: the cost of drafting is theirs, that of verification is not, and
/// their config.name says so.
Result<ModelFile> make_synthetic_model(const std::string& spec);

/// What is known of "synthetic:NAME" without making it.
struct SyntheticShape {
    std::string name;  ///< of its config
    int tokens = 0;    ///< ids the tokenizer has
    int hidden = 0;
};
Result<SyntheticShape> synthetic_shape(const std::string& spec);

/// Random values for `tensors`, made row by row as they are read; the same for the same list.
std::unique_ptr<WeightSource> make_synthetic_weights(std::string path, std::span<const ModelTensor> tensors);

/// Feed-forward size of the one-layer drafters published for the target (SpecForge's configs for the mixtures
/// of experts, the target's own otherwise); 0 for an unknown target.
int synthetic_drafter_ffn(std::string_view spec);

}  // namespace draftscope
