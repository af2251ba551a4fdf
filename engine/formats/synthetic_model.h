#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/formats/architecture.h"
#include "engine/formats/model_file.h"

namespace draftscope {

/// Whether `spec` is "synthetic:NAME", a target with a published model's dimensions and random weights. Its
/// costs are real, its output is meaningless; all results must be marked as synthetic. "synthetic:NAME/4" has
/// only the first 4 layers, but embedding, LM head and drafters of full size.
bool is_synthetic_model(std::string_view spec);

/// Makes a synthetic target. Weights are generated row by row during packing, so only the packed form takes
/// memory. The tokenizer has a token per byte; its other tokens read "[1234]". An unknown name is an error
/// that lists the known ones. Mixtures of experts (gpt-oss-20b, qwen3-30b-a3b) keep the LM head, embedding
/// and attention widths but have a few dense layers. Their drafting cost is real, their verification cost is
/// not, and config.name says so.
Result<ModelFile> make_synthetic_model(const std::string& spec);

/// Properties of "synthetic:NAME" that are known without making it.
struct SyntheticShape {
    std::string name;  ///< name in its config
    int tokens = 0;    ///< size of the tokenizer
    int hidden = 0;
};
Result<SyntheticShape> synthetic_shape(const std::string& spec);

/// Random values for `tensors`, generated row by row on reading, in any order. Every value depends only on
/// tensor, row and column.
std::unique_ptr<WeightSource> make_synthetic_weights(std::string path, std::span<const ModelTensor> tensors);

/// Returns the feed-forward size of one-layer drafters published for the target; 0 for an unknown target.
/// Mixtures of experts use SpecForge's configs, other targets their own size.
int synthetic_drafter_ffn(std::string_view spec);

}  // namespace draftscope
