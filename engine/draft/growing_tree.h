#pragma once

#include <cstddef>

#include "engine/draft/drafter.h"

namespace draftscope {

/// A tree that grows.
struct GrowingTree {
    DraftJob* job = nullptr;
    const float* input = nullptr;  ///< [2d] of the last verified slot: embedding of the next token, hidden
    // For drafters with a layer:
    const float* output = nullptr;  ///< [d] of that slot; yields the root's candidates
    KvCache* cache = nullptr;       ///< of the drafter
    int committed = 0;              ///< committed slots
    int free_slot = 0;              ///< first slot for rows of the tree
    // Set while it grows:
    int index = 0;           ///< among the trees that grow
    int nodes = 1;           ///< of the current level
    int slots = 0;           ///< used by nodes of earlier levels, without the root
    int first_node = 0;      ///< index of its first node in the level
    int first_row = 0;       ///< index of its first row in the level's head call
    std::size_t pool = 0;    ///< index of its first candidate in the pool
    int num_candidates = 0;  ///< in the pool
};

}  // namespace draftscope
