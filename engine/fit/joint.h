#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/draft/eagle_checkpoint.h"
#include "engine/fit/eagle_pass.h"
#include "engine/fit/fit_head.h"
#include "engine/model/target.h"

/// Drafter and head trained together, as SlimSpec, SpecVocab, BCL and VocabTrim-T do. Starts from a trained
/// drafter and a head fitted post-hoc, where the papers start from nothing.
namespace draftscope::fit {

/// An EAGLE checkpoint with its weights in f32.
struct JointDrafter {
    EagleCheckpoint checkpoint;
    EagleShape shape;
    EagleWeights weights;
};
/// `id` is eagle2 or eagle3; others, and an EAGLE-3 with a head of its own, are bad_input.
Result<JointDrafter> load_joint_drafter(const std::string& id, const std::string& folder,
                                        const Target& target);

/// The drafter's tensors under the names of its checkpoint, f16.
std::vector<FittedTensor> checkpoint_tensors(JointDrafter& drafter);

struct JointOptions {
    int steps = 4;       ///< draft steps unrolled
    int epochs = 1;      ///< our default: a trained drafter is the start
    double rate = 1e-4;  ///< our default; SlimSpec trains from nothing at 4e-4
    double clip = 0.5;
    int warmup = 20;
    double step_decay = 0.8;  ///< weight of step s is decay^s (EAGLE-3)
    int most_rows = 256;      ///< rows of a text that make a training step
    int most_slots = 512;     ///< a longer text is cut here
    HoldOut hold_out;         ///< as in CollectOptions
    double lambda = 0;        ///< above 0: L(p, q) + lambda L(p, q_student), q of the exact head (SpecVocab)
    std::uint64_t seed = 0;
};

/// Trains in place: `drafter` and the parameters of `student`. One text is one step. The epoch that is best
/// on held-out texts stays. Same bits for a seed at every thread count.
Result<KlReport> train_joint(kernels::Exec& exec, JointDrafter& drafter, const Target& target,
                             const Teacher& teacher, Student& student, TextSource& texts,
                             const JointOptions& options, const Hooks& hooks);

/// What fit_joint() needs beside the inputs of a post-hoc fit.
struct JointFit {
    JointDrafter& drafter;  ///< the checkpoint that inputs.drafter runs; trained in place
    const Target& target;   ///< its embedding
    JointOptions options;
    /// Stores the trained weights and loads them as a drafter.
    std::function<Result<std::unique_ptr<Drafter>>(const std::vector<FittedTensor>& weights)> reload;
};

/// Trains a head together with its drafter; slimspec, specvocab (set options.lambda), vocabtrim-t, bcl.
/// Starts from the post-hoc fit's own start.
Result<FittedHead> fit_joint(const FitInputs& inputs, const FitOptions& options, const JointFit& joint,
                             const Hooks& hooks);

}  // namespace draftscope::fit
