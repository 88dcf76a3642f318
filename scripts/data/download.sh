#!/usr/bin/env bash
# Download the sources of the folder CLIP_GEOMETRY_DATA into the current folder: gigabytes. build.py reads them.
set -e
for repository in multi30k/dataset adobe-research/Cross-lingual-Test-Dataset-XTD10 Weixin-Liang/Modality-Gap \
    infinitiveaman/clip-cifar10-search facebookresearch/Detic awaisnazir08/Images-Search-using-Clip \
    turbomaze/word2vecjson globalwordnet/english-wordnet developer0hye/COCO128 chenxingphh/rmib; do
  git clone --depth 1 "https://github.com/$repository" "clones/${repository#*/}"
done
mkdir -p captions embeddings/{coco500-clip-vit-b16,coco500-clip-vit-b16-random-init,cifar10-500-clip-vit-b32} \
    embeddings/class-names-clip-vit-b32 images/coco128 text/glue words
find clones/COCO128 -name '*.jpg' -exec cp {} images/coco128/ \;
hf download uoft-cs/cifar100 --repo-type dataset --include 'cifar100/*' --local-dir .
curl -O https://www.cl.uni-heidelberg.de/statnlpgroup/wikicaps/wikicaps_v1.0.tar.gz
mkdir wikicaps && tar -xf wikicaps_v1.0.tar.gz -C wikicaps
