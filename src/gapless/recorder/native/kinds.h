/* CUPTI's newest struct of each kind: record_8 is CUpti_ActivityDevice6, or what its headers have. */
#define KIND(kind, label, type) typedef type record_##kind;
#define FIELD(kind, type, field)
#define PART(kind, type, field, name, at)
#define TEXT(kind, type, field)
#include "layouts.inc"
#undef KIND
#undef FIELD
#undef PART
#undef TEXT
