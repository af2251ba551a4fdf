#pragma once

#include <type_traits>
#include <vector>

#include "storage/table_sql.h"

namespace draftscope::storage {

/// Inserts rows of one table with multi-row statements; single-row statements cost a third more. Holds rows,
/// by value (numbers) or by pointer, until `flush`.
template <typename Row, typename Held = const Row*>
class BatchInsert {
  public:
    static constexpr int rows_per_statement = 32;

    explicit BatchInsert(const Database& db)
        : one_(db.prepare(insert_sql(table_text<Row>()))),
          many_(db.prepare(insert_sql(table_text<Row>(), rows_per_statement))) {}
    explicit operator bool() const { return one_ && many_; }

    void add(Held row) { held_.push_back(std::move(row)); }
    void discard() { held_.clear(); }
    /// Inserts the held rows in order. Returns SQLITE_DONE or the error code. No row is held afterwards.
    int flush() {
        int code = SQLITE_DONE;
        std::size_t at = 0;
        while (at < held_.size() && code == SQLITE_DONE) {
            const bool full = held_.size() - at >= rows_per_statement;
            Statement& statement = full ? many_ : one_;
            const int count = full ? rows_per_statement : 1;
            for (int i = 0; i < count; ++i) bind_row(statement, 1 + i * column_count<Row>, row(held_[at++]));
            code = statement.step();
            statement.reset();
        }
        held_.clear();
        return code;
    }

  private:
    static const Row& row(const Held& held) {
        if constexpr (std::is_pointer_v<Held>)
            return *held;
        else
            return held;
    }

    Statement one_, many_;
    std::vector<Held> held_;
};

}  // namespace draftscope::storage
