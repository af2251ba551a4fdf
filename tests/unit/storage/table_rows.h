#pragma once

#include <string>

#include "base/rng.h"
#include "storage/table_sql.h"

namespace draftscope::testing {

/// Returns the first column in which two rows of a table differ; "" if they are equal.
template <typename Row>
std::string_view different_column(const Row& a, const Row& b) {
    std::string_view found;
    storage::for_each_field<Row>([&](auto index) {
        constexpr const auto& column = storage::column_of<Row, index>;
        if (found.empty() && a.*column.field != b.*column.field) found = column.name;
    });
    return found;
}

/// Sets a field to a random value that its column can hold.
template <typename Column, typename Field>
void randomise(const Column& column, Rng& rng, Field& field) {
    using Value = storage::detail::ValueOf<Field>;
    const auto below = [&](std::uint32_t n) { return static_cast<std::int64_t>(rng.below(n)); };
    if constexpr (!std::is_same_v<Value, Field>) {
        Value value{};
        randomise(column, rng, value);
        field = below(3) == 0 ? std::nullopt : Field(value);
    } else if constexpr (std::is_enum_v<Field>) {
        do field = static_cast<Field>(below(8));
        while (column.parse(to_text(field)) != field);
    } else if constexpr (std::is_same_v<Field, std::string>) {
        field.clear();
        for (std::int64_t n = below(5); n > 0; --n)
            field += static_cast<char>(below(column.is_blob ? 256 : 128));
    } else if constexpr (std::is_same_v<Field, bool>) {
        field = below(2) == 0;
    } else if constexpr (std::is_floating_point_v<Field>) {
        field = static_cast<Field>(rng.uniform() - 0.5);
    } else if constexpr (std::is_same_v<Field, int>) {
        const bool none = column.null_if_none && below(3) == 0;
        field = none ? -1 : static_cast<int>(below(2) == 0 ? column.high - below(5) : column.low + below(5));
    } else {
        field = static_cast<Field>(column.is_key ? 1 + below(1000) : below(1000));
    }
}

/// Returns a row with a random value in every stored field.
template <typename Row>
Row random_row(Rng& rng) {
    Row row;
    storage::for_each_field<Row>([&](auto index) {
        constexpr const auto& column = storage::column_of<Row, index>;
        randomise(column, rng, row.*column.field);
    });
    return row;
}

}  // namespace draftscope::testing
