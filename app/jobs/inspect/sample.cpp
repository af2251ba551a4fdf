#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "app/jobs/inspect/contents.h"

namespace draftscope {
namespace {

/// Rows that are read of a tensor, and of an embedding table.
constexpr int sampled_rows = 4, embedding_rows = 64;

/// Returns the values of evenly spaced rows, the first and the last among them.
std::vector<std::vector<float>> sample(const TensorFile& tensors, const TensorInfo& info, int count) {
    const std::int64_t rows = std::min<std::int64_t>(count, info.rows());
    std::vector<std::vector<float>> out(rows, std::vector<float>(info.cols()));
    for (std::int64_t i = 0; i < rows; ++i)
        tensors.read_row(info, i * (info.rows() - 1) / std::max<std::int64_t>(rows - 1, 1), out[i].data());
    return out;
}

/// Returns whether the norms of rows vary as little as those of d independent values, by 1 / sqrt(2 d).
bool looks_random(const std::vector<std::vector<float>>& rows) {
    double sum = 0, squares = 0;
    for (const auto& row : rows) {
        const double square = std::inner_product(row.begin(), row.end(), row.begin(), 0.0);
        sum += std::sqrt(square), squares += square;
    }
    const double count = static_cast<double>(rows.size()), mean = sum / count;
    const double deviation = std::sqrt(std::max(squares / count - mean * mean, 0.0));
    const double width = static_cast<double>(rows.front().size());
    return rows.size() == embedding_rows && mean > 0 && deviation < 1.5 * mean / std::sqrt(2 * width);
}

}  // namespace

void sample_tensors(const Contents& contents, Inspection& out) {
    const TensorFile& tensors = contents.tensors();
    std::map<std::vector<std::vector<float>>, std::string> seen;
    std::map<std::string, Notes> found;  // what, names
    for (const std::string& name : tensors.names()) {
        const StoredTensor& stored = *tensors.find_stored(name);
        const TensorInfo& info = stored.info;
        if (stored.data == nullptr) found["lie beyond the file's end"].push_back(name);
        const bool decodes = stored.type->dequantise != nullptr && stored.type->name == info.type;
        if (stored.data == nullptr || !decodes || stored.type->integers != nullptr || info.bytes == 0)
            continue;
        auto rows = sample(tensors, info, sampled_rows);
        const auto all = [&](auto matches) {
            return std::ranges::all_of(rows,
                                       [&](const auto& row) { return std::ranges::all_of(row, matches); });
        };
        if (!all([](float x) { return std::isfinite(x); }))
            found["hold values that are not finite"].push_back(name);
        else if (all([](float x) { return x == 0; }))
            found["hold zeros only"].push_back(name);
        else if (info.shape.size() == 1 && all([](float x) { return x == 1; }))
            found["hold ones only, as norms that were never trained"].push_back(name);
        else if (const auto [at, is_new] = seen.emplace(std::move(rows), name); !is_new)
            add_note(out.odd, "tensor '{}' has the values of '{}'", name, at->second);
        if (name.ends_with("embed_tokens.weight") && looks_random(sample(tensors, info, embedding_rows)))
            add_note(out.odd, "tensor '{}' looks random: its rows are as equally long as untrained ones",
                     name);
    }
    for (const auto& [what, names] : found)
        add_note(what.starts_with("lie") ? out.unread : out.odd, "{} of {} tensors {}: '{}'{}", names.size(),
                 tensors.names().size(), what, names.front(),
                 names.size() > 1 ? fmt::format(" to '{}'", names.back()) : "");
}

}  // namespace draftscope
