#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/formats/safetensors_writer.h"
#include "engine/formats/weight_source.h"
#include "engine/heads/head.h"

/// Head artefacts: the files that `fit` writes and fitted heads are loaded from (docs/FORMATS.md, "Head
/// artefacts").
namespace draftscope {

/// Metadata of an artefact.
struct ArtefactInfo {
    std::string head;    ///< registry id, or "rdk"
    std::string target;  ///< name of the model that the head was fitted for
    std::uint64_t tokenizer = 0;
    std::string drafter;       ///< drafter id, for example "eagle2"
    std::string drafter_hash;  ///< checkpoint_hash() of the drafter whose hidden states were used
    int vocab = 0;             ///< real ids of the target
    int hidden = 0;            ///< size of a hidden row
    bool joint = false;        ///< trained with the drafter; false = post-hoc
    bool synthetic = false;    ///< random values: matches every tokenizer and drafter of its shapes
    /// Folder of the drafter that was trained with the head, relative to the artefact; "" = the drafter is
    /// unchanged.
    std::string drafter_weights;
    /// As in a head spec: "rank" = "72" or "72/36" per level, "groups" = "16". A value repeated in a spec
    /// must match.
    std::map<std::string, std::string, std::less<>> parameters;
    std::vector<std::string> prompts;  ///< prompt_hash() of every prompt used for fitting
    std::string report = "{}";         ///< JSON object: held-out kl, top1, recall10, coverage, ...
};

/// An open head artefact: metadata and tensors.
class HeadArtefact {
  public:
    /// Opens and validates an artefact. A file of another format, a newer version or another head, or with
    /// damaged metadata, is bad_input. "synthetic:NAME" has random values (synthetic_artefact.h).
    static Result<HeadArtefact> open(const std::string& path, std::string_view head);
    static Result<HeadArtefact> synthetic(const std::string& target, const HeadSpec& spec);

    const ArtefactInfo& info() const { return info_; }
    const std::string& path() const { return tensors_->path(); }
    const WeightSource& tensors() const { return *tensors_; }

    /// Checks that the artefact was made for this target, tokenizer, drafter and these shapes; bad_input
    /// names the difference.
    Status fits(const HeadWeights& weights) const;
    /// Checks that parameters repeated in `spec` have the artefact's values: a head of rank 72 does not run
    /// as 36.
    Status check_parameters(const HeadSpec& spec) const;

    /// Returns parameter `name` as a whole number above 0; bad_input if absent.
    Result<int> count(std::string_view name) const;

    /// Returns the number of per-level tensors NAME.0, NAME.1, ...; 0 = `NAME` serves all levels.
    int levels(std::string_view name) const;
    /// Returns the tensor's name at `level`: NAME, or NAME.level. The last one serves all deeper levels.
    std::string at_level(std::string_view name, int level) const;
    /// Loads and packs matrix [n, k]; n or k < 0 accepts any size.
    Result<kernels::Matrix> matrix(kernels::Backend& backend, kernels::Precision precision,
                                   const std::string& name, int n, int k) const;
    /// Loads a 1-D tensor of `size` floats; zeros if absent.
    Result<std::vector<float>> vector_or_zeros(const std::string& name, int size) const;
    /// Loads token ids from tensor `name`: ascending, distinct, all in the target's vocabulary.
    Result<std::vector<TokenId>> ascending_ids(const std::string& name) const;
    /// Loads one number in 0..limit-1 per token of the vocabulary.
    Result<std::vector<int>> token_map(const std::string& name, int limit) const;

  private:
    Result<kernels::Matrix> scaled_matrix(kernels::Backend& backend, kernels::Precision precision,
                                          const TensorInfo& tensor) const;
    HeadArtefact(ArtefactInfo info, std::shared_ptr<const WeightSource> tensors)
        : info_(std::move(info)), tensors_(std::move(tensors)) {}
    ArtefactInfo info_;
    std::shared_ptr<const WeightSource> tensors_;
};

/// Writes an artefact atomically.
Status save_artefact(const std::string& path, const ArtefactInfo& info,
                     std::span<const TensorToSave> tensors);

/// Returns whether this file is a head artefact; false if it is a ranking or unreadable.
bool is_head_artefact(const std::string& path);

/// Opens the artefact that a fitted head requires. If none is given, bad_input says how to make one.
Result<HeadArtefact> required_artefact(const HeadSpec& spec, const HeadFiles& artefacts);

/// Returns the files of a folder in the order of their names, or the file itself.
std::vector<std::string> files_of(const std::string& path);

/// Identifies a drafter's weights by 16 hex digits. The hash covers the size and up to 64 evenly spaced 4 KiB
/// pieces of model.safetensors, else of each file of weights. `path`: the checkpoint's folder or file.
Result<std::string> checkpoint_hash(const std::string& path);

/// Identifies a prompt by 16 hex digits, whatever file it comes from. The hash covers the user text of its
/// first turn without surrounding white space.
std::string prompt_hash(std::string_view text);

}  // namespace draftscope
