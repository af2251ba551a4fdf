#pragma once

#include <algorithm>
#include <variant>
#include <vector>

#include "storage/tables.h"

namespace draftscope::storage {

/// Calls `visit(id, counter)` for every id in a record or in a part of one. `counter` is the member of RowIds
/// that numbers ids of its kind. Ids of vocabularies are left out.
template <typename Part, typename Visit>
void visit_ids(Part& part, const Visit& visit) {
    const auto all = [&](auto&... parts) { (visit_ids(parts, visit), ...); };
    if constexpr (std::is_same_v<Part, Record>) {
        std::visit(all, part);
    } else if constexpr (requires { part.begin(); }) {
        for (auto& row : part) all(row);
    } else if constexpr (std::is_same_v<Part, RunStarted>) {
        all(part.run, part.anchor);
    } else if constexpr (std::is_same_v<Part, RunEnded>) {
        visit(part.run_id, &RowIds::run);
        all(part.anchor);
    } else if constexpr (std::is_same_v<Part, PromptStarted> || std::is_same_v<Part, PromptEnded>) {
        all(part.prompt);
    } else if constexpr (std::is_same_v<Part, PromptProgress>) {
        visit(part.prompt_id, &RowIds::prompt);
        all(part.tokens);
    } else if constexpr (std::is_same_v<Part, RoundRecord>) {
        all(part.round, part.nodes, part.tops, part.tokens, part.head_evals);
    } else if constexpr (std::is_same_v<Part, StepRecord>) {
        all(part.step, part.rounds, part.spans);
    } else if constexpr (std::is_same_v<Part, SpansRecorded>) {
        all(part.spans);
    } else if constexpr (std::is_same_v<Part, HeadEvaluated>) {
        all(part.rows);
    } else if constexpr (!std::is_same_v<Part, LiveRound>) {
        for_each_field<Part>([&](auto index) {
            constexpr const auto& column = column_of<Part, index>;
            constexpr auto counter = ids_of(column.is_key ? Table<Part>::name : column.refers);
            if constexpr (counter != nullptr) visit(part.*column.field, counter);
        });
    }
}

/// Adds to a record's ids the `offset` of their kind, and raises `largest` to them. An id of 0 means none and
/// stays 0.
inline void shift_ids(Record& record, const RowIds& offset, RowIds& largest) {
    visit_ids(record, [&](RowId& id, RowId RowIds::*kind) {
        if (id == 0) return;
        id += offset.*kind;
        largest.*kind = std::max(largest.*kind, id);
    });
}

}  // namespace draftscope::storage
