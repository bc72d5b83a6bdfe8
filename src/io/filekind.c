#include "io/filekind.h"

#include <string.h>

#include "base/compiler.h"

#define PICKLE "a pickle file (it holds code and is not read; convert it to safetensors)"

const char *file_kind(const unsigned char *p, size_t n)
{
    static const struct {
        const char *magic;
        size_t n;
        const char *what;
    } kinds[] = {
        {"GGUF", 4, "a GGUF file"},
        {"\x80\2", 2, PICKLE},
        {"\x80\3", 2, PICKLE},
        {"\x80\4", 2, PICKLE},
        {"\x80\5", 2, PICKLE},
        {"PK\3\4", 4,
         "a zip file (a PyTorch .pt or .bin holds pickled code and is not read; "
         "convert it to safetensors)"},
        {"\x89HDF", 4, "an HDF5 file"},
        {"<!DOCTYPE", 9, "an HTML page (a failed download?)"},
        {"<!doctype", 9, "an HTML page (a failed download?)"},
        {"<html", 5, "an HTML page (a failed download?)"},
        {"version https://git-lfs", 23, "a git-lfs pointer (the file itself was not fetched)"},
        {"\x1f\x8b", 2, "a gzip file"},
        {"\x28\xb5\x2f\xfd", 4, "a zstd file"},
    };
    for (size_t i = 0; i < DS_LEN(kinds); i++)
        if (n >= kinds[i].n && memcmp(p, kinds[i].magic, kinds[i].n) == 0)
            return kinds[i].what;
    return NULL;
}
