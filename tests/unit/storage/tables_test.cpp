#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "file_helpers.h"
#include "storage/row_reader.h"
#include "storage/schema.h"
#include "storage/table_sql.h"
#include "table_rows.h"

// The descriptions of storage/tables.h: whatever follows from them agrees, for every table and column.
namespace draftscope::storage {
namespace {

using testing::different_column;
using testing::query;
using testing::random_row;

/// Returns an empty database with the tables of a capture.
Database empty_capture() {
    Database db = testing::open_plain(":memory:", SQLITE_OPEN_READWRITE);
    EXPECT_EQ(create_schema(db), SQLITE_OK) << db.message();
    return db;
}

TEST(Tables, ReturnRandomRowsUnchanged) {
    Rng rng(7);
    for_each_table([&]<typename Row>() {
        for (int i = 0; i < 50; ++i) {
            const Database db = empty_capture();
            const Row row = random_row<Row>(rng);
            Insert<Row> insert(db);
            ASSERT_EQ(insert.run(row), SQLITE_DONE) << Table<Row>::name << ": " << db.message();
            Cursor<Row> cursor(db);
            ASSERT_TRUE(cursor.has()) << Table<Row>::name << ": " << cursor.problem();
            ASSERT_EQ(different_column(cursor.peek(), row), "") << Table<Row>::name;
        }
    });
}

TEST(Tables, InsertSeveralRowsAtOnceInOrder) {
    Rng rng(8);
    const Database db = empty_capture();
    BatchInsert<SpanRow> insert(db);
    std::vector<SpanRow> rows;
    for (int i = 0; i < 70; ++i) {
        rows.push_back(random_row<SpanRow>(rng));
        rows.back().id = i + 1;
    }
    for (const SpanRow& row : rows) insert.add(&row);
    ASSERT_EQ(insert.flush(), SQLITE_DONE) << db.message();
    Cursor<SpanRow> cursor(db, 3);
    for (std::size_t i = 3; i < rows.size(); ++i) ASSERT_EQ(different_column(cursor.take(), rows[i]), "");
    EXPECT_FALSE(cursor.has());
}

TEST(Tables, NameTheColumnOfAValueOutOfRange) {
    Rng rng(9);
    int tried = 0;
    for_each_table([&]<typename Row>() {
        for_each_field<Row>([&](auto index) {
            constexpr const auto& column = column_of<Row, index>;
            using Field = std::remove_cvref_t<decltype(std::declval<Row>().*column.field)>;
            if constexpr (std::is_same_v<Field, int> || std::is_same_v<Field, std::optional<int>> ||
                          std::is_enum_v<Field>) {
                const Database db = empty_capture();
                ASSERT_EQ(Insert<Row>(db).run(random_row<Row>(rng)), SQLITE_DONE);
                const std::string value = std::is_enum_v<Field> ? "magic" : std::to_string(column.high + 1);
                ASSERT_EQ(db.exec(fmt::format("PRAGMA ignore_check_constraints = 1; UPDATE {} SET {} = '{}'",
                                              Table<Row>::name, column.name, value)),
                          SQLITE_OK)
                    << db.message();
                EXPECT_EQ(Cursor<Row>(db).problem(), fmt::format("table {}, row 1: column {} holds {}",
                                                                 Table<Row>::name, column.name, value));
                ++tried;
            }
        });
    });
    EXPECT_GT(tried, 30);
}

TEST(Tables, AreExactlyThoseOfTheFile) {
    std::vector<std::string> created;
    for_each_table([&]<typename Row>() { created.emplace_back(Table<Row>::name); });
    created.insert(created.end(), {"meta", "phase"});
    std::vector<std::string> named;
    for (const auto& [table, since] : table_names())
        if (table != dropped_table) named.emplace_back(table);
    std::sort(created.begin(), created.end());
    std::sort(named.begin(), named.end());
    EXPECT_EQ(created, named);
    EXPECT_EQ(query(empty_capture(), "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1"),
              named);
}

/// ALTER TABLE appends columns, and INSERT relies on their order.
TEST(Tables, HaveTheirLaterColumnsLastWithADefault) {
    for_each_table([]<typename Row>() {
        int newest = 0;
        for (const TableText::Column& column : table_text<Row>().columns) {
            EXPECT_GE(column.since, newest) << Table<Row>::name << '.' << column.name;
            EXPECT_LE(column.since, capture_schema_version) << Table<Row>::name << '.' << column.name;
            EXPECT_TRUE(column.since == 0 || !column.fallback.empty() ||
                        column.definition.find("NOT NULL") == std::string::npos)
                << column.definition;
            newest = column.since;
        }
    });
}

}  // namespace
}  // namespace draftscope::storage
