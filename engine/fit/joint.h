#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/draft/eagle_checkpoint.h"
#include "engine/fit/eagle_pass.h"
#include "engine/fit/fit_head.h"
#include "engine/model/target.h"

/// Trains drafter and head together, as SlimSpec, SpecVocab, BCL and VocabTrim-T do. The start is a trained
/// drafter and a head fitted post-hoc, where the papers start untrained.
namespace draftscope::fit {

/// An EAGLE checkpoint with its weights in f32.
struct JointDrafter {
    EagleCheckpoint checkpoint;
    EagleShape shape;
    EagleWeights weights;
};
/// Loads the checkpoint in `folder`. An `id` other than eagle2 or eagle3, or an EAGLE-3 with its own head, is
/// bad_input.
Result<JointDrafter> load_joint_drafter(const std::string& id, const std::string& folder,
                                        const Target& target);

/// The drafter's tensors as f16, under the names of its checkpoint.
std::vector<FittedTensor> checkpoint_tensors(JointDrafter& drafter);

struct JointOptions {
    int steps = 4;       ///< draft steps unrolled
    int epochs = 1;      ///< our default, because the drafter is already trained
    double rate = 1e-4;  ///< our default; SlimSpec trains an untrained drafter at 4e-4
    double clip = 0.5;
    int warmup = 20;
    double step_decay = 0.8;  ///< weight of step s is decay^s (EAGLE-3)
    int most_rows = 256;      ///< maximum rows of a text in a training step
    int most_slots = 512;     ///< longer texts are cut to this length
    HoldOut hold_out;         ///< as in CollectOptions
    double lambda = 0;        ///< if above 0, the loss is L(p, q) + lambda L(p, q_student), q of the exact
                              ///< head (SpecVocab)
    std::uint64_t seed = 0;
};

/// Trains `drafter` and the parameters of `student` in place. One text is one step. The epoch with the best
/// loss on held-out texts is kept. Results for a seed are bitwise equal at every thread count.
Result<KlReport> train_joint(kernels::Exec& exec, JointDrafter& drafter, const Target& target,
                             const Teacher& teacher, Student& student, TextSource& texts,
                             const JointOptions& options, const Hooks& hooks);

/// The additional inputs of fit_joint().
struct JointFit {
    JointDrafter& drafter;  ///< the checkpoint that inputs.drafter runs; trained in place
    const Target& target;   ///< provides the embedding
    JointOptions options;
    /// Stores the trained weights and loads them as a drafter.
    std::function<Result<std::unique_ptr<Drafter>>(const std::vector<FittedTensor>& weights)> reload;
};

/// Trains slimspec, specvocab (set options.lambda), vocabtrim-t or bcl together with its drafter. The head
/// starts as that of the post-hoc fit.
Result<FittedHead> fit_joint(const FitInputs& inputs, const FitOptions& options, const JointFit& joint,
                             const Hooks& hooks);

}  // namespace draftscope::fit
