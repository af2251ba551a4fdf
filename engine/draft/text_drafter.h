#pragma once

#include "engine/draft/drafter.h"

namespace draftscope {

/// A drafter that reads nothing but the tokens of texts, and drafts on the host.
class TextDrafter : public Drafter {
  public:
    Status begin(DraftContext& context, std::span<DraftJob> jobs) final;
    /// Returns the most drafts that its own rule makes, whatever the tree; 0 = as many as the tree has. In a
    /// pair, it drafts chains of this length.
    int own_length() const { return own_length_; }

  protected:
    /// `name` is that of the registry, for errors.
    TextDrafter(std::string_view name, DrafterProperties properties, int own_length)
        : Drafter(std::move(properties)), name_(name), own_length_(std::min(own_length, max_tree_levels)) {}
    /// Takes in what the job's text has beyond the last call.
    virtual void read(DraftJob& job) = 0;
    /// Drafts into DraftJob::out, which it starts with start_tree() and finishes. Sets DraftJob::score.
    virtual Status draft(PhaseRecorder& phases, DraftJob& job) = 0;

    /// Resets the job to its root; it needs nothing of the backend.
    static void start_tree(DraftJob& job) {
        job.out.reset(job.tokens.back(), job.tree.nodes);
        job.rows_per_call.clear();
        job.is_known = true;
    }

  private:
    std::string_view name_;
    int own_length_;
};

}  // namespace draftscope
