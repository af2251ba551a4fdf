#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/heads/head.h"
#include "engine/model/safetensors_writer.h"
#include "engine/model/weight_source.h"

/// Head artefacts: what `fit` makes and fitted heads are made from (docs/FORMATS.md, "Head artefacts").
namespace draftscope {

/// What an artefact says about itself.
struct ArtefactInfo {
    std::string head;    ///< registry id, or "rdk"
    std::string target;  ///< name of the model it was fitted for
    std::uint64_t tokenizer = 0;
    std::string drafter;       ///< id, "eagle2"
    std::string drafter_hash;  ///< checkpoint_hash() of the drafter whose hiddens it was fitted on
    int vocab = 0;             ///< real ids of the target
    int hidden = 0;            ///< columns of a hidden row
    bool joint = false;        ///< trained with the drafter; false = post-hoc
    bool synthetic = false;    ///< random values: fits every tokenizer and drafter of its shapes
    /// Folder of the drafter that was trained with it, beside the artefact; "" = the drafter is unchanged.
    std::string drafter_weights;
    /// As in a head spec: "rank" = "72" or "72/36" per level, "groups" = "16". What a spec repeats must
    /// agree.
    std::map<std::string, std::string, std::less<>> parameters;
    std::vector<std::string> prompts;  ///< prompt_hash() of every prompt that fitting saw
    std::string report = "{}";         ///< JSON object: held-out kl, top1, recall10, coverage, ...
};

class HeadArtefact {
  public:
    /// Opens and checks the file itself. Not an artefact, one of a newer version, one of another head and
    /// damaged metadata are bad_input. "synthetic:NAME" is one of random values (synthetic_artefact.h).
    static Result<HeadArtefact> open(const std::string& path, std::string_view head);
    static Result<HeadArtefact> synthetic(const std::string& target, const HeadSpec& spec);

    const ArtefactInfo& info() const { return info_; }
    const std::string& path() const { return tensors_->path(); }
    const WeightSource& tensors() const { return *tensors_; }

    /// Was it made for this target, tokenizer, drafter and these shapes? bad_input that names the difference.
    Status fits(const HeadWeights& weights) const;
    /// A parameter that `spec` repeats must have the artefact's value: a head of rank 72 does not run as 36.
    Status agrees(const HeadSpec& spec) const;

    /// Parameter `name` as a whole number above 0; an absent one is bad_input.
    Result<int> count(std::string_view name) const;

    /// Levels of a tensor: how many of NAME.0, NAME.1, ... there are; 0 = `NAME` serves all levels.
    int levels(std::string_view name) const;
    /// The tensor's name at `level`: NAME, or NAME.level, the last one for all deeper levels.
    std::string at_level(std::string_view name, int level) const;
    /// [n, k] packed as the head needs it; n or k < 0 = whatever the file has.
    Result<kernels::Matrix> matrix(kernels::Exec& exec, kernels::Precision precision, const std::string& name,
                                   int n, int k) const;
    /// A 1-D tensor of `size` floats; absent = zeros.
    Result<std::vector<float>> vector_or_zeros(const std::string& name, int size) const;
    /// Token ids of tensor `name`: rising, none twice, each one the target has.
    Result<std::vector<TokenId>> rising_ids(const std::string& name) const;
    /// One number in 0..limit-1 for each of the vocabulary's tokens.
    Result<std::vector<int>> map_of_tokens(const std::string& name, int limit) const;

  private:
    Result<kernels::Matrix> scaled_matrix(kernels::Exec& exec, kernels::Precision precision,
                                          const TensorInfo& tensor) const;
    HeadArtefact(ArtefactInfo info, std::shared_ptr<const WeightSource> tensors)
        : info_(std::move(info)), tensors_(std::move(tensors)) {}
    ArtefactInfo info_;
    std::shared_ptr<const WeightSource> tensors_;
};

/// Writes an artefact whole or not at all.
Status save_artefact(const std::string& path, const ArtefactInfo& info,
                     std::span<const TensorToSave> tensors);

/// Is this file a head artefact (and not a ranking)? An unreadable file is not.
bool is_head_artefact(const std::string& path);

/// The artefact that a fitted head cannot do without; none given is bad_input that says how to make one.
Result<HeadArtefact> needed_artefact(const HeadSpec& spec, const HeadArtefacts& artefacts);

/// Names a drafter's weights: 16 hex digits over the size and up to 64 evenly spaced 4 KiB pieces of its
/// model.safetensors. `path`: the checkpoint's folder, or the file.
Result<std::string> checkpoint_hash(const std::string& path);

/// Names a prompt whatever file it comes from: 16 hex digits over the user's text of its first turn, white
/// space at both ends left out.
std::string prompt_hash(std::string_view text);

}  // namespace draftscope
