#include "engine/draft/drafter_params.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/join_and.h"
#include "base/parse.h"

namespace draftscope {
namespace {

std::string list_names(std::span<const DrafterParam> params) {
    std::vector<std::string> names;
    for (const DrafterParam& param : params) names.emplace_back(param.name);
    return join_and(names);
}

Status read_param(std::string_view drafter, std::string_view piece, std::span<const DrafterParam> params) {
    const std::size_t equals = std::min(piece.find('='), piece.size());
    const std::string_view name = piece.substr(0, equals);
    const std::string_view value = piece.substr(std::min(equals + 1, piece.size()));
    const auto param = std::ranges::find(params, name, &DrafterParam::name);
    if (param == params.end())
        return bad_input("drafter '{}' has no parameter '{}'; it has {}", drafter, name, list_names(params));
    const auto number = parse_number<double>(value);
    const bool good = number && *number >= param->min && *number <= param->max &&
                      (!param->is_integer || *number == std::floor(*number));
    if (!good)
        return bad_input("drafter '{}': {}={} is not a {}number in {}..{}", drafter, name, value,
                         param->is_integer ? "whole " : "", param->min, param->max);
    *param->value = *number;
    return {};
}

}  // namespace

Status read_params(std::string_view drafter, std::string_view text, std::span<const DrafterParam> params) {
    for (std::string_view rest = text; !rest.empty();) {
        const std::size_t comma = std::min(rest.find(','), rest.size());
        DS_TRY(read_param(drafter, rest.substr(0, comma), params));
        rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
    return {};
}

}  // namespace draftscope
