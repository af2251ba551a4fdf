#pragma once

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "app/jobs/inspect/inspection.h"
#include "engine/formats/gguf.h"
#include "engine/formats/model_file.h"
#include "engine/formats/tensor_file.h"

namespace draftscope {

/// A checkpoint as far as it can be read.
struct Contents {
    std::string path;  ///< as given
    /// config.json, or GGUF metadata under its names; without members if it cannot be read.
    nlohmann::json config = nlohmann::json::object();
    std::optional<GgufFile> gguf;        ///< of a GGUF file
    std::unique_ptr<TensorFile> loaded;  ///< of other files; without tensors if they cannot be read
    Notes unread;

    const TensorFile& tensors() const { return gguf ? gguf->tensors() : *loaded; }
    /// The config of the decoder layers, which some writers nest.
    const nlohmann::json& layer_config() const;
    /// A number of the layers' config, else of the whole; 0 if it is absent.
    double number(const char* field) const;
    int count(const char* field) const {
        return static_cast<int>(std::clamp(number(field), 0.0, double{max_extent}));
    }
    /// The tensor that has or ends in a name, "norm.weight"; null if there is none.
    const TensorInfo* part(std::string_view name, std::string_view gguf_name = {}) const;
    /// The number of decoder layers by the config and the tensors' names.
    int layers() const;
};

/// Opens a folder, a file of weights, or a GGUF file. bad_input if neither config nor tensors can be read.
Result<Contents> open_contents(const std::string& path);

/// Returns the number in a text at `position`; 0 if there is none.
int number_at(const std::string& text, std::size_t position);

/// Adds what every checkpoint has: parameters, memory at each precision, layers, KV cache, rotation. The
/// embeddings of a tied model are its LM head, too.
void add_sizes(const Contents& contents, bool tied, Inspection& out);
/// Reads a few rows of each tensor, and adds what is odd. That is values that are not finite, zeros, equal
/// tensors, norms and embeddings that were never trained.
void sample_tensors(const Contents& contents, Inspection& out);
/// Adds a difference from the target, or the name to those that are equal. `meaning` follows the values, and
/// stands alone if they are true and false.
void compare(Inspection& out, const std::string& name, const nlohmann::json& ours,
             const nlohmann::json& theirs, const std::string& meaning = "");
/// Adds whether Draftscope takes the file, and how other stacks do, by assets/stacks.json. `what` is
/// "eagle3/specforge"; `use` is a drafter or head for the command line, or an error.
void add_stacks(const std::string& what, const Result<std::string>& use, Inspection& out);

/// Inspectors of checkpoints. `target` is null if none is given.
void inspect_model(const Contents& contents, const ModelFile* target, Inspection& out);
void inspect_eagle(const Contents& contents, const ModelFile* target, Inspection& out);
void inspect_decoding_heads(const Contents& contents, bool hydra, const ModelFile* target, Inspection& out);
void inspect_head_file(const Contents& contents, const ModelFile* target, Inspection& out);

}  // namespace draftscope
