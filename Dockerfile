# clip-geometry on CPUs, from this tree. Build: docker build -t clip-geometry .
# Run: docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/data" clip-geometry measure image.npy text.npy
FROM python:3.13-slim
RUN apt-get update && apt-get install -y --no-install-recommends git && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir torch torchvision --index-url https://download.pytorch.org/whl/cpu
COPY . /source
RUN pip install --no-cache-dir "/source[ship,explore]" && rm -rf /source
ENV HF_HOME=/tmp/huggingface MPLCONFIGDIR=/tmp/matplotlib
WORKDIR /data
ENTRYPOINT ["clip-geometry"]
CMD ["--help"]
