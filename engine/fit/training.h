#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/draft/drafter.h"
#include "engine/draft/eagle_checkpoint.h"
#include "engine/fit/evaluation.h"
#include "engine/fit/fitted_tensor.h"
#include "engine/fit/samples.h"

/// The border to PyTorch, which computes what needs gradients (tools/drafter_training/heads.py). Draftscope
/// writes the rows and the start to a file and reads the trained parameters back.
namespace draftscope::fit {

/// The contents of that file: settings as its metadata, and tensors.
class TrainingData {
  public:
    TrainingData() = default;
    TrainingData(TrainingData&&) = default;
    std::map<std::string, std::string> settings;

    /// Adds bytes that outlive this object.
    void add(std::string name, std::string_view type, std::vector<std::int64_t> shape,
             std::span<const std::byte> bytes) {
        tensors_.push_back({std::move(name), type, std::move(shape), bytes});
    }
    void add(FittedTensor tensor) { tensors_.push_back(owned_.emplace_back(std::move(tensor)).view()); }
    const std::vector<TensorToSave>& tensors() const { return tensors_; }

  private:
    std::deque<FittedTensor> owned_;
    std::vector<TensorToSave> tensors_;
};

/// The trained parameters, by the names of the start, and numbers for the report.
struct Trained {
    std::map<std::string, Dense, std::less<>> parameters;
    Report notes;
};
using Train = std::function<Result<Trained>(const TrainingData&)>;

/// Forward KL (SlimSpec, arXiv 2605.10453, appendix A): L = E KL(p || q), over the head's support, with the
/// teacher's distribution p and the head's q. On a trimmed support, p is renormalised as in its section 4.
struct KlOptions {
    int epochs = 2;  ///< our default; a post-hoc fit starts at the closed form
    int batch = 256;
    double rate = 1e-3;
    double level_decay = 0.8;  ///< weight of a row of draft level l is decay^l (EAGLE-3)
    double draft_share = 1;    ///< drafted rows per text row, taught by the drafter's full head; our default
    /// Who teaches text rows: "target" (SlimSpec), or "drafter", its full head.
    std::string teacher = "target";
    /// Tokens drawn in a step to stand for those that no teacher of the step favours; 0 = the whole
    /// vocabulary.
    int negatives = 0;
    std::uint64_t seed = 0;
};

/// Routers choose groups of the vocabulary before the LM head is read: CORAL (arXiv 2502.16880) by the
/// drafter's hidden state, DynaSpec (arXiv 2510.13847) by token embedding and previous hidden state.
struct RouterOptions {
    int width = 128;  ///< r; our default
    int epochs = 4;   ///< our default
    int batch = 128;
    double rate = 2e-3;
    std::uint64_t seed = 0;
};

struct JointOptions {
    int steps = 4;       ///< draft steps unrolled
    int epochs = 1;      ///< our default; the drafter is already trained
    int batch = 1;       ///< texts a step; our default, SlimSpec has 64 and SpecVocab 8
    int warmup = 20;     ///< steps, at most a quarter of all; our default, SlimSpec has 100
    double rate = 1e-4;  ///< our default; SlimSpec trains an untrained drafter at 4e-4
    double lambda = 0;   ///< above 0: L(p, q) + lambda L(p, q_student), q of the exact head (SpecVocab)
    std::uint64_t seed = 0;
};

/// Training drafter and head together, as SlimSpec, SpecVocab, BCL and VocabTrim-T do. Unlike there, the
/// drafter is trained and the head is fitted beforehand.
struct JointFit {
    EagleCheckpoint& checkpoint;  ///< of the drafter
    const Target& target;         ///< provides the embedding
    JointOptions options;
    std::vector<std::string> recordings;  ///< folders of the texts, in the order of the text source
    std::string drafter_out;              ///< folder that gets the trained drafter's files
    /// Loads the trained drafter.
    std::function<Result<std::unique_ptr<Drafter>>()> reload;
};

/// Opens the checkpoint of a drafter that can be trained with its head. An `id` other than eagle2 or eagle3,
/// an EAGLE-3 with its own head, and variants that the trainer lacks are bad_input.
Result<EagleCheckpoint> open_joint_drafter(const std::string& id, const std::string& folder,
                                           const Target& target);

/// `samples` must outlive the result.
TrainingData divergence_data(const Samples& samples, const Teacher& teacher, const HeadFactors& start,
                             const KlOptions& options);
TrainingData router_data(const SampleRows& rows, RouterInput input, std::span<const std::int32_t> group_of,
                         int groups, const RouterOptions& options);
TrainingData joint_data(const JointFit& joint, const Teacher& teacher, const HeadFactors& start,
                        const TextSplit& split);

}  // namespace draftscope::fit
