#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What bash offers for a word of `byteps` after the Tab key. Skipped without bash.
command -v bash >/dev/null || { echo "skipped: there is no bash"; exit 77; }
status=0

# offered WORDS ARGUMENT...: bash offers these words for the last argument
offered()
{
    expected=$1
    shift
    # shellcheck disable=SC2016 # the text is for bash
    output=$(bash -c 'source "$0"; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _byteps byteps; echo "${COMPREPLY[*]}"' \
        "${top_srcdir:-.}/tools/completion/byteps" "$@")
    [ "$output" = "$expected" ] || { echo "$*: '$output' instead of '$expected'"; status=1; }
}

offered run byteps r
offered --hosts\ --hostfile\ --host-discovery-script byteps run --ho
offered horovod byteps run --as ""
offered info byteps plugin in
offered "list info new check bench" byteps plugin ""
offered "compressor framework reducer stage transport" byteps plugin new ""
offered "" byteps plugin new stage ""
offered "--build --bandwidth" byteps info --b
offered --json byteps conf show --j
offered "check show sample" byteps conf ""
offered "merge show" byteps trace ""
offered --workers byteps trace show --w
offered "transport train" byteps bench tr
offered "transport reducer compressor stage framework" byteps plugin info some --kind ""
offered resnet50 byteps plan -n 2 --model resn
offered resnet50 byteps plan --model = resn
offered "--workers --worker-price" byteps plan --work
offered worker.partition= byteps run --set worker.partit
offered tcp byteps bench transport --transport tc
offered "" byteps run --conf byt
offered sha256sum byteps run -n 2 -- sha256su
offered sha256sum byteps run --conf a.conf sha256su
offered "" byteps run -n 2 -- echo --ho
offered "" byteps nosuch --ho
exit $status
