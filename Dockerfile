# What the nodes of kuberay.yaml run.
ARG BASE=rayproject/ray:2.60.0-py311-cpu
FROM ${BASE}
COPY --chown=ray . /home/ray/mara_ray
RUN pip install --no-cache-dir -e /home/ray/mara_ray
