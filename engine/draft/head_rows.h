#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/notes.h"
#include "base/result.h"
#include "base/units.h"
#include "engine/formats/weight_source.h"
#include "kernels/matrix.h"

namespace draftscope {

/// How far a drafter's vocabulary may differ from the target's: padding and added tokens.
constexpr int max_vocab_difference = 512;

/// Which tokens the rows of a trimmed LM head are.
struct HeadRows {
    std::vector<TokenId> ids;   ///< ascending; empty = row i is token i
    std::vector<TokenId> rows;  ///< stored row of each id; empty = all rows as they are
};

/// Where a checkpoint says which tokens its rows are.
struct HeadRowMaps {
    std::string to_target;  ///< tensor with the token of each row: d2t, token_map
    std::string marks;      ///< tensor that marks the tokens that have a row: t2d; "" = none
    bool offsets = true;    ///< to_target usually holds token - row, and else the token
    int own_vocab = 0;      ///< tokens that the drafter knows; 0 = as many as the target
    std::string head = "lm_head.weight";
    /// How to_target is read, whatever it seems to hold; absent = by what it holds.
    std::optional<bool> read_offsets = {};
};

/// Reads the maps of a head of `rows` rows (nullopt: as many as the map has). What is guessed becomes a note.
Result<HeadRows> read_head_rows(const WeightSource& source, const HeadRowMaps& maps, std::optional<int> rows,
                                int vocab, Notes& notes);
/// Returns the head's rows in the order of `ids`.
kernels::Matrix select_rows(kernels::Backend& backend, kernels::Matrix head, const HeadRows& vocab);

}  // namespace draftscope
