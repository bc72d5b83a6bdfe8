/* Event files of TensorBoard, private to io: the numbers of the fields that are read or written, and
 * the checksum of their records.
 *
 *   record:  u64 length | u32 masked CRC-32C of it | data | u32 masked CRC-32C of the data
 *
 * all little-endian; the data is an Event message. */
#ifndef DS_SRC_IO_TFEVENTS_FIELDS_H
#define DS_SRC_IO_TFEVENTS_FIELDS_H

#include <stdint.h>

#include "base/hash.h"

enum {
    TFRECORD_HEAD = 12, /* length and its checksum */
    TFRECORD_TAIL = 4,

    EVENT_WALL_TIME = 1, /* double */
    EVENT_STEP = 2,
    EVENT_FILE_VERSION = 3,
    EVENT_GRAPH = 4,
    EVENT_SUMMARY = 5,
    EVENT_LOG_MESSAGE = 6,
    EVENT_SESSION_LOG = 7,
    EVENT_RUN_METADATA = 8,
    EVENT_META_GRAPH = 9,

    SUMMARY_VALUE = 1,

    VALUE_TAG = 1,
    VALUE_SIMPLE = 2, /* float */
    VALUE_OLD_HISTOGRAM = 3,
    VALUE_IMAGE = 4,
    VALUE_HISTOGRAM = 5,
    VALUE_AUDIO = 6,
    VALUE_NODE_NAME = 7,
    VALUE_TENSOR = 8,
    VALUE_METADATA = 9,
    /* Ours: the double that was rounded to VALUE_SIMPLE.  Others skip a field that they do not
     * know. */
    VALUE_EXACT = 17476,

    METADATA_PLUGIN = 1, /* PluginData: 1 name, 2 content */

    LOG_LEVEL = 1, /* 10 debug, 20 info, 30 warn, 40 error, 50 fatal */
    LOG_TEXT = 2,

    SESSION_STATUS = 1,
    SESSION_START = 1
};

static inline uint32_t tfrecord_crc(const void *p, size_t n)
{
    uint32_t crc = hash_crc32c(0, p, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

#endif
