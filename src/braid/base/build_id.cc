#include "braid/base/build_id.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <span>

namespace braid {
namespace {

struct Search {
  ElfW(Addr) code = 0;
  std::string id;
};

std::string id_in_notes(const char* notes, size_t bytes) {
  const auto padded = [](size_t n) { return (n + 3) & ~size_t{3}; };
  for (size_t at = 0; at + sizeof(ElfW(Nhdr)) <= bytes;) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes + at, sizeof(note));
    const size_t name = at + sizeof(note), text = name + padded(note.n_namesz);
    if (text + note.n_descsz > bytes) break;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
        std::memcmp(notes + name, "GNU", 4) == 0) {
      std::string id;
      for (size_t i = 0; i < note.n_descsz; ++i) {
        id += fmt::format("{:02x}", static_cast<unsigned char>(notes[text + i]));
      }
      return id;
    }
    at = text + padded(note.n_descsz);
  }
  return "";
}

// Looks into one program or library; 1 ends the search.
int look(dl_phdr_info* info, size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  const std::span<const ElfW(Phdr)> parts(info->dlpi_phdr, info->dlpi_phnum);
  const bool here = std::ranges::any_of(parts, [&](const ElfW(Phdr) & part) {
    const ElfW(Addr) begin = info->dlpi_addr + part.p_vaddr;
    return part.p_type == PT_LOAD && search.code >= begin && search.code < begin + part.p_memsz;
  });
  if (!here) return 0;
  for (const ElfW(Phdr) & part : parts) {
    if (part.p_type != PT_NOTE || !search.id.empty()) continue;
    search.id =
        id_in_notes(reinterpret_cast<const char*>(info->dlpi_addr + part.p_vaddr), part.p_memsz);
  }
  return 1;
}

}  // namespace

std::string build_id() {
  Search search{.code = reinterpret_cast<ElfW(Addr)>(&build_id)};
  dl_iterate_phdr(look, &search);
  return search.id;
}

}  // namespace braid
