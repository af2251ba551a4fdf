#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "storage/sql.h"

namespace draftscope::storage {

/// Inserts rows of one table with multi-row statements; single-row statements cost a third more. Holds rows,
/// by value (numbers) or by pointer, until `flush`.
template <typename Row>
class BatchInsert {
  public:
    static constexpr int rows_per_statement = 32;

    BatchInsert(const Database& db, std::string_view table, int columns)
        : columns_(columns),
          one_(db.prepare(sql(table, 1))),
          many_(db.prepare(sql(table, rows_per_statement))) {}
    explicit operator bool() const { return one_ && many_; }

    void add(Row row) { held_.push_back(std::move(row)); }
    void discard() { held_.clear(); }
    /// Binds each held row with `bind(statement, first_parameter, row)`, in order, and inserts it. Returns
    /// SQLITE_DONE or the error code. No row is held afterwards.
    template <typename Bind>
    int flush(Bind bind) {
        int code = SQLITE_DONE;
        std::size_t at = 0;
        while (at < held_.size() && code == SQLITE_DONE) {
            const bool full = held_.size() - at >= rows_per_statement;
            Statement& statement = full ? many_ : one_;
            const std::size_t count = full ? rows_per_statement : 1;
            for (std::size_t i = 0; i < count; ++i)
                bind(statement, 1 + static_cast<int>(i) * columns_, held_[at + i]);
            code = statement.step();
            statement.reset();
            at += count;
        }
        held_.clear();
        return code;
    }

  private:
    std::string sql(std::string_view table, int rows) const {
        std::string row = "(?";
        for (int i = 1; i < columns_; ++i) row += ", ?";
        row += ")";
        std::string all = row;
        for (int i = 1; i < rows; ++i) all += ", " + row;
        return fmt::format("INSERT INTO {} VALUES {}", table, all);
    }

    int columns_;
    Statement one_, many_;
    std::vector<Row> held_;
};

}  // namespace draftscope::storage
