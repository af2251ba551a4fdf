#include <array>

#include "engine/tree/tree_choices.h"

namespace draftscope {
namespace {

/// Paths of ranks, one digit per level, by depth and then by path; the order of the published lists has no
/// meaning. Sources: Medusa (github FasterDecoding/Medusa, medusa/model/medusa_choices.py), whose default is
/// mc_sim_7b_63; EAGLE-1 (github SafeAILab/EAGLE, model/choices.py), which uses the same name for its own
/// tree.
constexpr std::array<PublishedChoices, 6> table{{
    {"mc_sim_7b_63",
     "0 1 2 3 4 5 6 7 8 9 00 01 02 03 04 05 06 07 08 09 10 11 12 13 14 15 16 20 21 22 30 31 40 50 60 "
     "70 80 90 000 001 002 003 004 005 006 007 008 009 010 011 012 020 021 030 040 050 060 070 100 101 "
     "200 0000 0001"},
    {"vicuna_7b_stage2",
     "0 1 2 3 4 5 6 7 8 9 00 01 02 03 04 05 06 07 08 09 10 11 12 13 14 20 21 30 31 40 50 60 70 000 001 "
     "002 003 004 005 006 007 008 010 011 012 013 020 021 030 040 050 100 101 102 110 200 0000 0001 "
     "0002 0003 0010 0020 0100"},
    {"vicuna_13b_stage2",
     "0 1 2 3 4 5 6 7 8 9 00 01 02 03 04 05 06 07 08 09 10 11 12 13 20 21 30 40 50 000 001 002 003 004 "
     "005 006 007 008 009 010 011 012 013 020 021 030 040 050 100 101 102 110 200 300 0000 0001 0002 "
     "0003 0010 0011 0020 0100 1000"},
    {"vicuna_33b_stage2",
     "0 1 2 3 4 5 6 7 8 9 00 01 02 03 04 05 06 07 08 09 10 11 12 13 14 20 21 22 30 31 40 50 60 70 000 "
     "001 002 003 004 005 006 007 008 009 010 011 012 013 020 021 030 040 050 100 101 102 110 200 0000 "
     "0001 0002 0010 0100"},
    {"zephyr_stage2",
     "0 1 2 3 4 5 6 7 8 9 00 01 02 03 04 05 06 07 08 09 10 11 12 13 14 15 20 21 22 23 30 31 40 41 50 "
     "60 70 000 001 002 003 004 005 006 007 008 009 010 011 012 013 020 021 030 040 050 100 101 110 "
     "200 0000 0001 0010"},
    {"eagle_mc_sim_7b_63",
     "0 1 2 3 00 01 02 10 11 20 21 30 000 001 002 010 011 020 021 100 0000 0001 0002 00000 00001"},
}};

}  // namespace

std::span<const PublishedChoices> published_choices() {
    return table;
}

}  // namespace draftscope
