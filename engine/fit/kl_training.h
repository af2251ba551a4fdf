#pragma once

#include <memory>
#include <vector>

#include "engine/fit/adam.h"
#include "engine/fit/dense.h"
#include "engine/fit/hooks.h"
#include "engine/fit/low_rank.h"
#include "engine/fit/samples.h"
#include "kernels/matrix.h"

/// Forward-KL training of draft LM heads: L = E KL(p || q), p the teacher's and q the head's distribution
/// over the head's support (SlimSpec, arXiv 2605.10453, appendix A). On a trimmed support, p is renormalised
/// as in its section 4.
namespace draftscope::fit {

/// A head whose parameters are trained. Keeps what backward() needs from the last forward().
class Student {
  public:
    virtual ~Student() = default;
    virtual int support() const = 0;  ///< number of logits
    /// levels[r] is the draft level of row r.
    virtual void forward(kernels::Exec& exec, Rows<const float> hidden, std::span<const std::uint8_t> levels,
                         Rows<float> logits) = 0;
    /// Gradients of the parameters for the last forward(), and `d_hidden` if it has rows.
    virtual void backward(kernels::Exec& exec, Rows<const float> hidden, std::span<const std::uint8_t> levels,
                          Rows<const float> d_logits, Rows<float> d_hidden) = 0;
    virtual std::vector<Parameter> parameters() = 0;
};

/// z = up (down h): SlimSpec's head and SpecVocab's speculator. Trains the factors in place.
std::unique_ptr<Student> make_low_rank_student(LowRankWeights& factors);
/// z = W h with W [V', d]: a trimmed head.
std::unique_ptr<Student> make_dense_student(Dense& weights);

/// The teacher's logits: LM head rows of the student's tokens, applied to the teacher's hidden state.
struct Teacher {
    const kernels::Matrix* target_rows = nullptr;   ///< [>= support, d] of the target; for text rows
    const kernels::Matrix* drafter_rows = nullptr;  ///< of the approximated head; for drafted rows
    int support = 0;                                ///< number of logits, without padding rows
};

struct KlOptions {
    int epochs = 2;  ///< our default; a post-hoc fit starts at the closed form
    int batch = 256;
    double rate = 1e-3;
    int warmup = 20;
    double clip = 0.5;         ///< SlimSpec
    double level_decay = 0.8;  ///< weight of a row of draft level l is decay^l (EAGLE-3)
    double drafted_share = 1;  ///< drafted rows per text row, taught by the drafter's full head; our default
    std::uint64_t seed = 0;
};

struct KlReport {
    double kl_before = 0, kl_after = 0;  ///< on held-out rows, weighted like the training loss
    int steps = 0;
    int best_epoch = 0;  ///< 0 = the start was kept, because training increased the held-out loss
};

/// Trains `student` on the rows that are not held out. The state with the best held-out loss after an epoch
/// stays. Same bits for a seed at every thread count. Without held-out or training rows: bad_input.
Result<KlReport> train_kl(kernels::Exec& exec, const Samples& samples, const Teacher& teacher,
                          Student& student, const KlOptions& options, const Hooks& hooks);

}  // namespace draftscope::fit
