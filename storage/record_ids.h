#pragma once

#include <variant>
#include <vector>

#include "storage/tables.h"

namespace draftscope::storage {

/// Calls `visit(id, counter)` for every id in a record. `counter` is the member of RowIds that numbers ids of
/// its kind. Ids of vocabularies are left out.
template <typename Visit>
class IdWalk {
  public:
    explicit IdWalk(Visit visit) : visit_(std::move(visit)) {}

    void operator()(RunStarted& r) {
        (*this)(r.run);
        (*this)(r.anchor);
    }
    void operator()(RunEnded& r) {
        visit_(r.run_id, &RowIds::run);
        (*this)(r.anchor);
    }
    void operator()(PromptStarted& r) { (*this)(r.prompt); }
    void operator()(PromptEnded& r) { (*this)(r.prompt); }
    void operator()(PromptProgress& r) {
        visit_(r.prompt_id, &RowIds::prompt);
        (*this)(r.tokens);
    }
    void operator()(RoundRecord& r) {
        (*this)(r.round);
        (*this)(r.nodes);
        (*this)(r.tops);
        (*this)(r.tokens);
        (*this)(r.head_evals);
    }
    void operator()(StepRecord& r) {
        (*this)(r.step);
        (*this)(r.rounds);
        (*this)(r.spans);
    }
    void operator()(LiveRound&) {}
    void operator()(SpansRecorded& r) { (*this)(r.spans); }
    void operator()(HeadEvaluated& r) { (*this)(r.rows); }
    template <typename Row>
    void operator()(std::vector<Row>& rows) {
        for (Row& row : rows) (*this)(row);
    }
    /// The row's own id and those of the rows it refers to.
    template <typename Row>
    void operator()(Row& row) {
        for_each_field<Row>([&](auto index) {
            constexpr const auto& column = column_of<Row, index>;
            constexpr auto counter = ids_of(column.is_key ? Table<Row>::name : column.refers);
            if constexpr (counter != nullptr) visit_(row.*column.field, counter);
        });
    }

  private:
    Visit visit_;
};

}  // namespace draftscope::storage
