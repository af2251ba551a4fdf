#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/draft/eagle_checkpoint.h"
#include "engine/fit/eagle_pass.h"
#include "engine/fit/fit_head.h"
#include "engine/transformer/target.h"

/// Trains drafter and head together, as SlimSpec, SpecVocab, BCL and VocabTrim-T do. Unlike there, the
/// drafter is trained and the head is fitted beforehand.
namespace draftscope::fit {

/// An EAGLE checkpoint with its weights in f32.
struct JointDrafter {
    EagleCheckpoint checkpoint;
    EagleShape shape;
    EagleWeights weights;
};
/// Loads a checkpoint. An `id` other than eagle2 or eagle3, or an EAGLE-3 with its own head, is bad_input.
Result<JointDrafter> load_joint_drafter(const std::string& id, const std::string& folder,
                                        const Target& target);

/// The drafter's tensors as f16, under the names of its checkpoint.
std::vector<FittedTensor> checkpoint_tensors(JointDrafter& drafter);

struct JointOptions {
    int steps = 4;       ///< draft steps unrolled
    int epochs = 1;      ///< our default; the drafter is already trained
    double rate = 1e-4;  ///< our default; SlimSpec trains an untrained drafter at 4e-4
    double clip = 0.5;
    int warmup = 20;
    double step_decay = 0.8;  ///< weight of step s is decay^s (EAGLE-3)
    int max_rows = 256;       ///< maximum rows of a text in a training step
    int max_slots = 512;      ///< longer texts are cut to this length
    HoldOut hold_out;         ///< as in CollectOptions
    double lambda = 0;        ///< above 0: L(p, q) + lambda L(p, q_student), q of the exact head (SpecVocab)
    std::uint64_t seed = 0;
};

/// Trains `drafter` and the parameters of `student` in place, one text per step. Keeps the epoch with the
/// best held-out loss. Same bits for a seed at every thread count.
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

/// Trains slimspec, specvocab (set options.lambda), vocabtrim-t or bcl with its drafter, from the post-hoc
/// fit's own start.
Result<FittedHead> fit_joint(const FitInputs& inputs, const FitOptions& options, const JointFit& joint,
                             const Hooks& hooks);

}  // namespace draftscope::fit
