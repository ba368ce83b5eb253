# One image for every service: compose chooses the app by its command.
FROM node:20-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ make python3 && rm -rf /var/lib/apt/lists/*
WORKDIR /hotbed
COPY package.json package-lock.json .npmrc ./
RUN npm ci
COPY . .
RUN node apps/cli/bin/setup.mjs && npm prune --omit=dev

FROM node:20-bookworm-slim
ENV NODE_ENV=production
WORKDIR /hotbed
COPY --from=build /hotbed/package.json ./
COPY --from=build /hotbed/node_modules ./node_modules
COPY --from=build /hotbed/dist ./dist
COPY --from=build /hotbed/native/build/Release/hotbed.node ./native/build/Release/hotbed.node
COPY --from=build /hotbed/models/seedling ./models/seedling
RUN mkdir /data && chown node:node /data
USER node
VOLUME /data
ENTRYPOINT ["node", "--enable-source-maps"]
